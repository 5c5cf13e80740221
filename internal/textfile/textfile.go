// Package textfile reads and writes what a user names as an input or an output, which may
// be any file: a directory, a device that never ends, a pipe with no other end.
//
// Read is for inputs, Open for outputs.
package textfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// patience bounds the time for which a pipe may have no other end. Tests have less.
var patience = 5 * time.Second

// Read reads a file, but not more than most bytes of it: then the caller knows that it is
// longer than most-1. A pipe, such as a shell makes for <(...), is read to its end, however
// slowly that is written. The errors name the file.
func Read(file string, most int64) ([]byte, error) {
	if file == "" {
		return nil, errors.New("the name of the file is empty")
	}
	// Not to block: the end of a pipe that has no other end yet would be waited for.
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no file %s", file)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, fmt.Errorf("%s is a directory, expected a file", file)
	}
	limited := io.LimitReader(f, most)
	read := func() ([]byte, error) { return io.ReadAll(limited) }
	if info.Mode()&fs.ModeNamedPipe == 0 {
		return read()
	}
	data, open, err := readPipe(read, func() bool { return hungUp(f) })
	if !open {
		return nil, fmt.Errorf("%s is a pipe that nobody writes to", file)
	}
	return data, err
}

// readPipe reads a pipe to its end. As long as nobody has opened it to write, it is at its end: open is false if nobody does.
// read reads what there is, and ended reports whether somebody had it open who has no more.
func readPipe(read func() ([]byte, error), ended func() bool) (data []byte, open bool, err error) {
	for end := time.Now().Add(patience); ; time.Sleep(pause) {
		// A writer that has ended has written everything, so that it is read.
		last := ended()
		if data, err = read(); last || err != nil || len(data) > 0 {
			return data, true, err
		}
		if time.Now().After(end) {
			return nil, false, nil
		}
	}
}

// Open opens a file that is there, to write to it. The error names the file.
func Open(file string) (*os.File, error) {
	for end := time.Now().Add(patience); ; time.Sleep(pause) {
		// To block, a pipe would wait for who reads it.
		f, err := os.OpenFile(file, os.O_WRONLY|unix.O_NONBLOCK, 0)
		if info, _ := os.Stat(file); !errors.Is(err, unix.ENXIO) || info == nil || info.Mode()&fs.ModeNamedPipe == 0 {
			return f, err
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("%s is a pipe that nobody reads", file)
		}
	}
}

// pause lies between two looks for the other end of a pipe.
const pause = 10 * time.Millisecond

// hungUp reports whether somebody has had the other end of a pipe open since it was
// opened, and nobody has now.
func hungUp(f *os.File) bool {
	raw, err := f.SyscallConn()
	if err != nil {
		return true
	}
	p := []unix.PollFd{{Events: unix.POLLIN}}
	err = raw.Control(func(fd uintptr) {
		p[0].Fd = int32(fd)
		_, err := unix.Poll(p, 0)
		if err != nil {
			p[0].Revents = 0
		}
	})
	return err != nil || p[0].Revents&unix.POLLHUP != 0
}
