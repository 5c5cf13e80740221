package verbs_test

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/verbs"
	"github.com/ndklab/ndklab/internal/race"
)

// lose registers memory of its own for the host, in the place of h.memory, and takes the rights to it away.
func (h *host) lose(rights int) {
	h.world.t.Helper()
	memory, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	check(h.world.t, err)
	h.world.t.Cleanup(func() { _ = unix.Munmap(memory) })
	check(h.world.t, h.mr.Reregister(verbs.Registration{Memory: verbs.Bytes(memory), Length: size, Base: base}))
	check(h.world.t, unix.Mprotect(memory, rights))
}

// TestLostMemory: memory that the program has taken away is as memory that is not registered: for a peer, which gets the
// same status, and for requests and receives of its own.
func TestLostMemory(t *testing.T) {
	const none, read = unix.PROT_NONE, unix.PROT_READ
	for _, test := range []struct {
		op     rc.Op
		own    bool // the memory of the side that posts is lost
		rights int
		want   verbs.Status // 0: all is well
		event  string       // at the side that answers
	}{
		{rc.OpWrite, true, none, verbs.LocalProtectionError, ""},
		{rc.OpWrite, true, read, verbs.Success, ""},
		{rc.OpWrite, false, none, verbs.RemoteAccessError, "access error"},
		{rc.OpWrite, false, read, verbs.RemoteAccessError, "access error"},
		{rc.OpRead, true, none, verbs.LocalProtectionError, ""},
		{rc.OpRead, true, read, verbs.LocalProtectionError, ""},
		{rc.OpRead, false, none, verbs.RemoteAccessError, "access error"},
		{rc.OpRead, false, read, verbs.Success, ""},
		{rc.OpSend, true, none, verbs.LocalProtectionError, ""},
		{rc.OpSend, false, read, verbs.RemoteOperationError, ""},
		{rc.OpFetchAdd, true, read, verbs.LocalProtectionError, ""},
		{rc.OpFetchAdd, false, none, verbs.RemoteAccessError, "access error"},
		{rc.OpCompareSwap, false, read, verbs.RemoteAccessError, "access error"},
		{rc.OpAtomicWrite, false, read, verbs.RemoteAccessError, "access error"},
	} {
		for _, length := range []int{8, 50_000} {
			atomic := test.op == rc.OpFetchAdd || test.op == rc.OpCompareSwap || test.op == rc.OpAtomicWrite
			if atomic && (length > 8 || race.Enabled()) { // by the race detector in C, where no fault is caught
				continue
			}
			t.Run(fmt.Sprintf("%+v of %d", test, length), func(t *testing.T) {
				w := newWorld(t, 1)
				qps := w.pair(verbs.RC, nil)
				a, b := w.hosts[0], w.hosts[1]
				if test.own {
					a.lose(test.rights)
				} else {
					b.lose(test.rights)
				}
				if test.op == rc.OpSend && !test.own {
					b.receive(qps[1], 9, 0, size)
				}
				w.post(qps[0], a.request(test.op, 1, 0, length, 64))
				w.run()
				var got [2]verbs.Completion
				if n := a.cq.Poll(got[:]); n != 1 || got[0].Status != test.want {
					t.Errorf("%d completions, the first with status %d, want %d", n, got[0].Status, test.want)
				}
				if test.op == rc.OpSend && !test.own {
					b.completed(fmt.Sprint("receive 9 status ", verbs.LocalProtectionError))
				}
				if test.event != "" {
					b.happened(test.event)
				}
			})
		}
	}
}

// TestLostReceive: likewise, of queue pairs that answer nothing.
func TestLostReceive(t *testing.T) {
	w := newWorld(t, 1)
	qps := w.pair(verbs.UC, nil)
	a, b := w.hosts[0], w.hosts[1]
	b.lose(unix.PROT_READ)
	b.receive(qps[1], 9, 0, 100)
	w.post(qps[0], a.request(rc.OpSend, 1, 0, 8, 0), a.request(rc.OpWrite, 2, 0, 8, 0))
	a.completed("send 1", "write 2")
	b.completed(fmt.Sprint("receive 9 status ", verbs.LocalProtectionError))
}
