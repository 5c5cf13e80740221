package suite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Suffix ends the names of files that are found without being named.
const Suffix = ".ndklab.yaml"

// Find returns the topology files that paths name: files as they are, and all *.ndklab.yaml in
// folders and the folders in them, in the order of their names, but for folders whose
// names begin with a dot. A file that is found again, also by another path or through a
// link, is in again alone.
func Find(paths []string) (files []string, again []Again, err error) {
	var seen []fs.FileInfo // by the index in files
	for _, path := range paths {
		found, err := find(path)
		if err != nil {
			return nil, nil, err
		}
		for _, file := range found {
			file = filepath.Clean(file)
			info, err := os.Stat(file)
			if err != nil {
				return nil, nil, err
			}
			if i := slices.IndexFunc(seen, func(other fs.FileInfo) bool { return os.SameFile(info, other) }); i >= 0 {
				again = append(again, Again{Path: file, First: files[i]})
				continue
			}
			files, seen = append(files, file), append(seen, info)
		}
	}
	return files, again, nil
}

// An Again is a path of a file that was found before, by the path First.
type Again struct{ Path, First string }

// String returns a message that the file is run once.
func (a Again) String() string {
	if a.Path == a.First {
		return a.First + " is named more than once: it runs once (--count runs files several times)"
	}
	return fmt.Sprintf("%s is the file %s: it runs once (--count runs files several times)", a.Path, a.First)
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
