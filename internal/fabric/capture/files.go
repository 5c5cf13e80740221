package capture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Files are the output of a capture: one file, a ring of files of which the oldest
// make room, or a stream. They belong to one goroutine.
type Files struct {
	path string
	size uint64 // from which a file is full; 0: never
	keep int

	stream  io.Writer // instead of files
	current *os.File
	number  int      // of the current one of a ring
	names   []string // of the ring's files that exist
	written uint64   // bytes to the current file
}

// Stream is a Files that writes to w.
func Stream(w io.Writer) *Files { return &Files{stream: w} }

// File makes a file, or empties it if it exists.
func File(path string) (*Files, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	return &Files{path: path, current: file}, nil
}

// Ring makes the first of files PATH_00001.pcapng and so on, where path is
// PATH.pcapng, each of which is full from size bytes on; not more than keep of
// them stay.
func Ring(path string, size uint64, keep int) (*Files, error) {
	f := &Files{path: path, size: size, keep: keep}
	if err := f.open(); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *Files) name(number string) string {
	extension := filepath.Ext(f.path)
	return strings.TrimSuffix(f.path, extension) + "_" + number + extension
}

// open opens the next file of a ring.
func (f *Files) open() error {
	f.number++
	name := f.name(fmt.Sprintf("%05d", f.number))
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	f.current, f.written = file, 0
	f.names = append(f.names, name)
	return nil
}

// next begins another file.
func (f *Files) next() error {
	if err := f.current.Close(); err != nil {
		return fmt.Errorf("write the capture: %w", err)
	}
	if len(f.names) == f.keep {
		// Somebody else may have removed it.
		if err := os.Remove(f.names[0]); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("capture: remove the oldest file: %w", err)
		}
		f.names = f.names[1:]
	}
	if err := f.open(); err != nil {
		return fmt.Errorf("capture: %w", err)
	}
	return nil
}

// Write writes whole blocks. When that fails, a file is cut behind the last whole
// block, so that it can be read.
func (f *Files) Write(blocks []byte) (int, error) {
	if f.stream != nil {
		return f.stream.Write(blocks)
	}
	n, err := f.current.Write(blocks)
	if err != nil {
		err = fmt.Errorf("write the capture: %w", err)
		if info, e := f.current.Stat(); e == nil && info.Mode().IsRegular() {
			err = errors.Join(err, f.current.Truncate(int64(f.written)+int64(whole(blocks, n))))
		}
		return n, err
	}
	f.written += uint64(n)
	return n, nil
}

// whole returns the length of the whole blocks in the first n bytes of blocks.
func whole(blocks []byte, n int) int {
	end := 0
	for end+8 <= n {
		length := int(binary.LittleEndian.Uint32(blocks[end+4:]))
		if end+length > n {
			break
		}
		end += length
	}
	return end
}

// Close closes the current file. A stream is its owner's to close.
func (f *Files) Close() error {
	if f.current == nil {
		return nil
	}
	if err := f.current.Close(); err != nil {
		return fmt.Errorf("write the capture: %w", err)
	}
	return nil
}
