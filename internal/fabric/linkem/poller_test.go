package linkem

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestBlock: the engine waits for frames until a timeout, also on kernels without epoll_pwait2.
func TestBlock(t *testing.T) {
	for _, old := range []bool{false, true} {
		var err error
		w := &poller{old: old}
		if w.fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		defer unix.Close(w.fd)
		var pipe [2]int
		if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		defer unix.Close(pipe[0])
		defer unix.Close(pipe[1])
		if err := w.watch(pipe[0]); err != nil {
			t.Fatal(err)
		}
		const timeout = 300 * time.Microsecond // less than a millisecond, which epoll_wait cannot
		w.timeout = unix.NsecToTimespec(int64(timeout))
		began := time.Now()
		if n, err := w.block(&w.timeout); n != 0 || err != nil || time.Since(began) < timeout {
			t.Errorf("old %v: %d events, %v after %v", old, n, err, time.Since(began))
		}
		if _, err := unix.Write(pipe[1], []byte{0}); err != nil {
			t.Fatal(err)
		}
		if n, err := w.block(nil); n != 1 || err != nil || w.events[0].Fd != int32(pipe[0]) {
			t.Errorf("old %v: %d events of %d, %v, want one of %d", old, n, w.events[0].Fd, err, pipe[0])
		}
	}
}
