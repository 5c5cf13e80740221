package main

/*
#include "engine.h"
*/
import "C"

import (
	"encoding/binary"
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/provider/verbs"
	"github.com/ndklab/ndklab/internal/provider/verbs/foreign"
)

// An engine in a process of its own serves one other process, or several that are forks of one. One thread calls it.
var (
	client int // the process whose memory calls name; 0: this one's own
	space  foreign.Space
)

//export engineServe
func engineServe(pid, socket C.int) {
	client = int(pid)
	serving.Do(func() { space.Ended = func(pid int) bool { return endWith(pid, int(socket)) } })
}

var serving, ending sync.Once

// endTime bounds the end of a process, ms: its files are closed soon after its memory is gone.
const endTime = 1000

// endWith ends this process with the last of those that it serves, of which one has ended, and reports whether it does: an
// adapter whose program has ended does not answer for it. Its main thread sees the end, too, but maybe later than a packet
// comes, or in the midst of a post. The report takes the lock of each queue pair, one of which the caller has: another
// goroutine waits for that.
func endWith(pid, socket int) bool {
	if fd, err := unix.PidfdOpen(pid, 0); err == nil {
		wait(fd, unix.POLLIN, endTime)
		_ = unix.Close(fd) // nothing was written there
	}
	if !wait(socket, unix.POLLRDHUP, 0) {
		return false
	}
	ending.Do(func() {
		go func() {
			engineEnded()
			os.Exit(0)
		}()
	})
	return true
}

// wait waits until something happens to a descriptor, for so many milliseconds, and reports whether it has.
func wait(fd int, events int16, timeout int) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: events}}
	n, err := unix.Poll(p, timeout)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Poll(p, timeout)
	}
	return n > 0
}

//export engineSendEvent
func engineSendEvent(fd C.int, cookie C.uint64_t) {
	outboxOf(int(fd)).put(event{uint64(cookie), binary.NativeEndian.AppendUint64(nil, uint64(cookie))})
}

//export engineDropEvents
func engineDropEvents(cookie C.uint64_t) { forget(uint64(cookie)) }

// release lets go of memory that is not registered any more; nil is none.
func release(memory verbs.Memory) {
	if m, ok := memory.(*foreign.Memory); ok {
		_ = m.Close() // it is an address range, and the worst is that it stays
	}
}
