package foreign

import (
	"errors"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A vector is the pieces of a system call. Each costs the kernel about as much as a page to copy, so that pieces which
// follow each other are one.
type vector struct {
	localRoom  [64]unix.Iovec
	remoteRoom [64]unix.RemoteIovec
	local      []unix.Iovec
	remote     []unix.RemoteIovec
	bytes      int
}

func (v *vector) fill(local [][]byte, remote []unix.RemoteIovec) {
	v.local, v.remote, v.bytes = v.localRoom[:0], v.remoteRoom[:0], 0
	for _, b := range local {
		v.bytes += len(b)
		if last := len(v.local) - 1; last >= 0 && uintptr(unsafe.Pointer(v.local[last].Base))+uintptr(v.local[last].Len) == addressOf(b) {
			v.local[last].Len += uint64(len(b))
			continue
		}
		v.local = append(v.local, unix.Iovec{Base: unsafe.SliceData(b), Len: uint64(len(b))})
	}
	for _, r := range remote {
		if last := len(v.remote) - 1; last >= 0 && v.remote[last].Base+uintptr(v.remote[last].Len) == r.Base {
			v.remote[last].Len += r.Len
			continue
		}
		v.remote = append(v.remote, r)
	}
}

// errEnded is the error of a process that has ended.
var errEnded = errors.New("the process has ended")

// read reads bytes of a process, all or none: EFAULT if they are not there, errEnded if it is not.
func (v *vector) read(pid int, to [][]byte, from []unix.RemoteIovec) error {
	v.fill(to, from)
	n, err := unix.ProcessVMReadv(pid, v.local, v.remote, 0)
	return v.whole(n, err)
}

// write writes bytes to a process.
func (v *vector) write(pid int, from [][]byte, to []unix.RemoteIovec) error {
	v.fill(from, to)
	n, err := unix.ProcessVMWritev(pid, v.local, v.remote, 0)
	return v.whole(n, err)
}

// readv and writev are read and write once, with EFAULT for a process that has ended, too.
func readv(pid int, to [][]byte, from []unix.RemoteIovec) error {
	return absent(new(vector).read(pid, to, from))
}

func writev(pid int, from [][]byte, to []unix.RemoteIovec) error {
	return absent(new(vector).write(pid, from, to))
}

func absent(err error) error {
	if errors.Is(err, errEnded) {
		return syscall.EFAULT
	}
	return err
}

func (v *vector) whole(n int, err error) error {
	switch {
	case errors.Is(err, syscall.ESRCH):
		return errEnded
	case err != nil:
		return err
	case n != v.bytes:
		return syscall.EFAULT
	}
	return nil
}
