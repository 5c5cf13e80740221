package sharing

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestLines: what the owner pauses at an address, another process waits for there, and nothing else; and it goes on when the
// pause is over.
func TestLines(t *testing.T) {
	addresses := []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}
	words := make([]uint64, Size(2)/8)
	memory := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), len(words)*8)
	var ledgers [2]*Ledger
	for own := range ledgers {
		var err error
		if ledgers[own], err = New(memory, addresses, own); err != nil {
			t.Fatal(err)
		}
	}
	owner, other := ledgers[0], ledgers[1]
	for _, dscp := range []uint8{0, 26, 31, 32, 63} {
		owner.SetPaused(addresses[1], 1<<dscp)
		for i, address := range addresses {
			for _, of := range []uint8{0, 26, 31, 32, 63} {
				if got, want := other.PauseOf(address, of).Active(), i == 1 && of == dscp; got != want {
					t.Errorf("DSCP %d at %v is paused: %v, want %v", of, address, got, want)
				}
			}
		}
		over := make(chan struct{})
		other.PauseOf(addresses[1], dscp).WhenOver(func() { close(over) })
		awaitSleeper(t, other.PauseOf(addresses[1], dscp).word)
		owner.SetPaused(addresses[1], 1<<dscp|1<<(dscp^1)) // of no concern to who waits
		select {
		case <-over:
			t.Error("the pause was over before it was")
		default:
		}
		owner.SetPaused(addresses[1], 1<<(dscp^1))
		select {
		case <-over:
		case <-time.After(10 * time.Second):
			t.Fatal("nobody was told that the pause is over")
		}
		owner.SetPaused(addresses[1], 0)
	}
	for own, l := range ledgers { // what any process says of a line, all know
		rate := uint64(own+1) * 1e9
		l.SetLineRate(addresses[1], rate)
		l.SetLineRate(netip.MustParseAddr("10.0.0.3"), rate)
		for _, of := range ledgers {
			if of.LineRate(addresses[0]) != 0 || of.LineRate(addresses[1]) != rate || of.LineRate(netip.MustParseAddr("10.0.0.3")) != 0 {
				t.Errorf("rates %d and %d, want 0 and %d", of.LineRate(addresses[0]), of.LineRate(addresses[1]), rate)
			}
		}
	}
	for _, l := range []*Ledger{NewPrivate(addresses), owner} {
		l.SetPaused(netip.MustParseAddr("10.0.0.3"), 1)
		if p := l.PauseOf(netip.MustParseAddr("10.0.0.3"), 0); p != nil {
			t.Error("a pause at an address that the ledger does not have")
		}
	}
}

// awaitSleeper waits until a thread of this process sleeps on a futex.
func awaitSleeper(t *testing.T, futex *atomic.Uint32) {
	t.Helper()
	call := fmt.Sprintf("%d %p ", unix.SYS_FUTEX, futex)
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		threads, err := filepath.Glob("/proc/self/task/*/syscall")
		if err != nil {
			t.Fatal(err)
		}
		for _, thread := range threads {
			now, err := os.ReadFile(thread)
			if errors.Is(err, fs.ErrPermission) {
				t.Skip(err) // a container may forbid it
			}
			if strings.HasPrefix(string(now), call) {
				return
			}
		}
	}
	t.Fatal("nobody sleeps")
}
