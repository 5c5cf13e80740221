// Package jsonfile writes what a bench has found to a file. Each bench decides how its JSON looks.
package jsonfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Write writes results to a file as JSON. If it fails, the file from before is left as it is.
func Write(file string, results any) (err error) {
	text, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return err
	}
	temporary, err := os.CreateTemp(filepath.Dir(file), ".results-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("write %s: %w", file, err), os.Remove(temporary.Name()))
		}
	}()
	_, err = temporary.Write(append(text, '\n'))
	if err == nil {
		err = temporary.Chmod(0o644)
	}
	if err = errors.Join(err, temporary.Close()); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), file)
}
