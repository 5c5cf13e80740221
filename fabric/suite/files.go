package suite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Suffix ends the names of files that are found without being named.
const Suffix = ".ndklab.yaml"

// Find is the topology files that paths name: files as they are, and all *.ndklab.yaml in
// folders and the folders in them, in the order of their names, but for folders whose
// names begin with a dot. A file that is named twice is found once.
func Find(paths []string) ([]string, error) {
	var files []string
	seen := map[string]bool{}
	add := func(path string) {
		if path = filepath.Clean(path); !seen[path] {
			seen[path] = true
			files = append(files, path)
		}
	}
	for _, path := range paths {
		found, err := find(path)
		if err != nil {
			return nil, err
		}
		for _, file := range found {
			add(file)
		}
	}
	return files, nil
}

func find(path string) (files []string, err error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("there is no file or folder %s", path)
	case err != nil:
		return nil, err
	case !info.IsDir():
		return []string{path}, nil
	}
	root := path + string(filepath.Separator) // or a link to a folder would not be followed
	err = filepath.WalkDir(root, func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && name != root && strings.HasPrefix(e.Name(), "."):
			return filepath.SkipDir
		case !e.IsDir() && strings.HasSuffix(name, Suffix):
			files = append(files, name)
		}
		return nil
	})
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("folder %s has no *%s", path, Suffix)
	}
	return files, err
}
