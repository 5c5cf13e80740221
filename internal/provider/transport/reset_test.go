package transport

import (
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/provider/clock"
)

// TestResetDuringCount: a channel is reset while somebody sums up the counters of all, and has come to it.
func TestResetDuringCount(t *testing.T) {
	d := New(Config{Clock: clock.Real(), Rand: rand.New(rand.NewPCG(1, 2))})
	c := new(Channel)
	c.Init(d, rc.Config{Receives: rc.NewReceiveQueue(1, 1)}, nil)
	if !d.Add(&c.Pair) {
		t.Fatal("there is no number")
	}
	c.Lock()
	counted, reset := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(counted)
		d.Counters()
	}()
	for d.retiring.TryLock() {
		d.retiring.Unlock()
		runtime.Gosched()
	}
	go func() {
		defer close(reset)
		defer c.Unlock()
		c.Reset(rc.Config{Receives: rc.NewReceiveQueue(1, 1)})
	}()
	late := make(chan struct{})
	defer clock.Real().AfterFunc(10*time.Second, func() { close(late) }).Stop()
	for _, done := range []chan struct{}{reset, counted} {
		select {
		case <-done:
		case <-late:
			t.Fatal("each waits for the other")
		}
	}
}
