package main

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// An entry is a file, a symbolic link or, in images, an empty folder that is put somewhere.
type entry struct {
	path   string // where it is put, with slashes, relative; that of a folder ends with one
	source string // the file on this machine; "": a symbolic link or a folder
	link   string // what the link says
	mode   fs.FileMode
}

// A tree is a list of entries. The folders of files come from their paths.
type tree []entry

// readTree returns the files of a folder. Who has built them, and with which umask, is not in it.
func readTree(folder string) (tree, error) {
	var t tree
	err := filepath.WalkDir(folder, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(folder, name)
		if err != nil {
			return err
		}
		e := entry{path: filepath.ToSlash(relative), source: name}
		if info.Mode()&0o100 != 0 {
			e.mode = 0o755
		}
		t = append(t, e)
		return nil
	})
	return t, err
}

// under returns the tree with all its entries in a folder.
func (t tree) under(folder string) tree {
	var moved tree
	for _, e := range t {
		e.path = path.Join(folder, e.path)
		moved = append(moved, e)
	}
	return moved
}

// permission returns the mode that an entry has wherever it is put.
func (e entry) permission() fs.FileMode {
	switch {
	case e.mode != 0:
		return e.mode
	case e.source == "":
		return 0o777
	}
	return 0o644
}

// writeTar writes the tree, its folders first, as root's files of one time.
func (t tree) writeTar(w io.Writer, at time.Time) error {
	folders := make(map[string]bool)
	for _, e := range t {
		for folder := path.Dir(strings.TrimSuffix(e.path, "/")); folder != "."; folder = path.Dir(folder) {
			folders[folder] = true
		}
	}
	all := slices.Clone(t)
	for folder := range folders {
		all = append(all, entry{path: folder + "/", mode: fs.ModeDir | 0o755})
	}
	slices.SortFunc(all, func(a, b entry) int { return strings.Compare(a.path, b.path) })
	out := tar.NewWriter(w)
	for _, e := range all {
		if err := e.writeTo(out, at); err != nil {
			return fmt.Errorf("%s: %w", e.path, err)
		}
	}
	return out.Close()
}

// writeTo writes an entry, or a folder.
func (e entry) writeTo(out *tar.Writer, at time.Time) error {
	header := tar.Header{Name: e.path, Mode: int64(e.permission().Perm()), ModTime: at, Format: tar.FormatPAX}
	switch {
	case e.mode.IsDir():
		header.Typeflag = tar.TypeDir
		if e.mode&fs.ModeSticky != 0 {
			header.Mode |= 0o1000
		}
	case e.source == "":
		header.Typeflag, header.Linkname = tar.TypeSymlink, e.link
	default:
		header.Typeflag = tar.TypeReg
		file, err := os.Open(e.source)
		if err != nil {
			return err
		}
		defer file.Close()
		info, err := file.Stat()
		if err != nil {
			return err
		}
		header.Size = info.Size()
		if err := out.WriteHeader(&header); err != nil {
			return err
		}
		_, err = io.Copy(out, file)
		return err
	}
	return out.WriteHeader(&header)
}

// archive writes the .tar.gz of an architecture: a folder in which ndklab runs wherever it is unpacked.
func (r release) archive(arch string, programs, documents tree) error {
	name := r.file(arch, "tar.gz")
	folder := strings.TrimSuffix(filepath.Base(name), ".tar.gz")
	return writeFile(name, func(w io.Writer) error {
		zip, err := gzip.NewWriterLevel(w, gzip.BestCompression)
		if err != nil {
			return err
		}
		if err := slices.Concat(programs, documents).under(folder).writeTar(zip, r.date); err != nil {
			return err
		}
		return zip.Close()
	})
}

// sum writes the checksums of all files of the release, as sha256sum -c reads them.
func (r release) sum() error {
	files, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(r.out, "SHA256SUMS"), func(w io.Writer) error {
		for _, file := range files {
			content, err := os.ReadFile(filepath.Join(r.out, file.Name()))
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(w, "%x  %s\n", sha256.Sum256(content), file.Name()); err != nil {
				return err
			}
		}
		return nil
	})
}

// writeFile has write make a file.
func writeFile(name string, write func(io.Writer) error) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := write(file); err != nil {
		file.Close()
		return err
	}
	return file.Close()
}
