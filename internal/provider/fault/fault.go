// Package fault is how memory is read and written that is a program's, which may have unmapped or protected it: what
// would be SIGSEGV or SIGBUS in the middle of our code is an answer.
//
// It is for the few functions that touch such memory and nothing else, so that nothing is half done when they end:
//
//	func fill(to []byte) (ok bool) {
//		defer fault.Catch(fault.Expect(), &ok)
//		clear(to)
//		return true
//	}
//
// Expecting faults takes some nanoseconds and no system call. The Go runtime needs its own handler of the two signals
// for it: a program that has put another in its place since gets them itself.
package fault

import (
	"os"
	"runtime/debug"
	"unsafe"
)

// Expect has faults of the goroutine be caught until Catch, which takes its result.
func Expect() (before bool) { return debug.SetPanicOnFault(true) }

// Catch, deferred, ends what Expect began. If there was a fault, the function returns, with ok false.
func Catch(before bool, ok *bool) {
	debug.SetPanicOnFault(before)
	if recover() != nil {
		*ok = false
	}
}

// Copy copies from one place to another of the same length; false if one of them is not there, or shorter, or may not be
// written. Then some of it may have been copied.
func Copy(to, from []byte) (ok bool) {
	defer Catch(Expect(), &ok)
	return copy(to, from) == max(len(to), len(from))
}

// pageSize is the least size of a page of memory, bytes.
var pageSize = uintptr(os.Getpagesize())

// Readable reports whether memory can be read, by reading a byte of each of its pages.
func Readable(b []byte) (ok bool) {
	if len(b) == 0 {
		return true
	}
	defer Catch(Expect(), &ok)
	start := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	for at := uintptr(0); at < uintptr(len(b)); at += pageSize - (start+at)%pageSize {
		read(&b[at])
	}
	return true
}

// read reads a byte, though nobody wants it.
//
//go:noinline
func read(b *byte) byte { return *b }
