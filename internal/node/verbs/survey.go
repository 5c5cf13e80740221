package verbs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/ndklab/ndklab/internal/node/verbs/rdmacm"
)

// FolderVariable names the folder of ndklab's libraries where they are not beside the
// program, as in tests.
const FolderVariable = "NDKLAB_LIBRARIES"

// Folder returns the folder of ndklab's libraries, or an error that says what is missing. They are files, and not within
// the program, since every node mounts them as they are: all share their pages, and none has a copy.
func Folder() (string, error) {
	if folder := os.Getenv(FolderVariable); folder != "" {
		if err := complete(folder); err != nil {
			return "", err
		}
		return folder, nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	beside := filepath.Join(filepath.Dir(self), "verbs") // as make verbs leaves them
	folders := []string{beside, filepath.Join(filepath.Dir(self), "../lib/ndklab")}
	for _, folder := range folders {
		if complete(folder) == nil {
			return folder, nil
		}
	}
	return "", complete(beside)
}

// complete returns an error that lists what a folder of libraries lacks.
func complete(folder string) error {
	var all error
	for _, name := range []string{Ibverbs, Engine, Process} {
		if _, err := os.Stat(filepath.Join(folder, name)); err != nil {
			all = errors.Join(all, err)
		}
	}
	return all
}

// A Survey lists what a machine has for RDMA programs.
type Survey struct {
	Folder  string   // of ndklab's libraries
	Lacks   error    // what is missing of them
	Glibc   string   // the version of the C library; "" if it is none that ndklab knows
	Musl    bool     // the C library is musl
	Ibverbs []string // where programs find libibverbs.so.1
	RDMACM  []string // and librdmacm.so.1
	Unfit   error    // why nodes cannot have one of these
}

// Look examines this machine.
func Look() Survey {
	var s Survey
	s.Folder, s.Lacks = Folder()
	musl, _ := filepath.Glob("/lib/ld-musl-*.so.1") // the pattern is a good one
	s.Musl = len(musl) > 0
	cache, err := readCache()
	if err != nil {
		s.Unfit = err
		return s
	}
	s.Glibc = glibc(cache.Find(libc))
	foreign := func(path string) bool { return !isNative(path) }
	s.Ibverbs = slices.DeleteFunc(cache.Find(Ibverbs), foreign)
	s.RDMACM = slices.DeleteFunc(cache.Find(RDMACM), foreign)
	for _, path := range s.RDMACM {
		library, err := os.ReadFile(path)
		if err == nil {
			_, err = rdmacm.Rename(library)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.Unfit = errors.Join(s.Unfit, fmt.Errorf("%s: %w", path, err))
		}
	}
	return s
}

// glibc returns the version that a glibc says it is: "... stable release version 2.36.".
func glibc(paths []string) string {
	for _, path := range paths {
		if !isNative(path) {
			continue
		}
		library, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		_, after, found := bytes.Cut(library, []byte(" release version "))
		version, _, ended := bytes.Cut(after[:min(len(after), 16)], []byte(".\n"))
		if found && ended {
			return string(version)
		}
	}
	return ""
}
