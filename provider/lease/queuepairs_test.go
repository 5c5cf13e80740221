package lease

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/provider/transport"
	"github.com/ndklab/ndklab/provider"
)

// The owner lists the queue pairs of a process, however many there are, and none when the
// process is gone.
func TestQueuePairs(t *testing.T) {
	s := serving(t, config(1))
	s.answering = patience
	device := opened(t)
	var own []provider.QueuePair
	for i := range 2*pageOfPairs + 1 {
		own = append(own, provider.QueuePair{Number: uint32(1<<transport.ShareShift + 16 + i), Transport: "UD", State: "rts", Sent: uint64(i)})
	}
	backwards := slices.Clone(own)
	slices.Reverse(backwards)
	stop := device.ListQueuePairs(func() []provider.QueuePair { return backwards })
	got := s.QueuePairs(t.Context())
	if len(got) != len(own) {
		t.Fatalf("%d of %d", len(got), len(own))
	}
	for i := range got {
		if got[i].QueuePair != own[i] || got[i].OwnerPID != uint32(os.Getpid()) {
			t.Errorf("%+v, want %+v", got[i], own[i])
		}
	}
	stop()
	if got := s.QueuePairs(t.Context()); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

// A process that lists what it cannot have loses its lease; one that does not answer is
// not waited for.
func TestStrangeQueuePairs(t *testing.T) {
	word := strings.Repeat("x", 17)
	for name, test := range map[string]struct {
		pair   provider.QueuePair
		reason string
	}{
		"another's":   {provider.QueuePair{Number: 2<<transport.ShareShift + 16}, "not of its share"},
		"a long word": {provider.QueuePair{Number: 1<<transport.ShareShift + 16, State: word}, "not of a device's making"},
		"silence":     {},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(1)
			logged := make(chan string, 16)
			cfg.Log = func(message string) { logged <- message }
			s := serving(t, cfg)
			if test.reason == "" {
				s.answering = 50 * time.Millisecond
			}
			var mux control.Mux
			methodFiles.Handle(&mux, func(context.Context, *control.Request, control.None) error { return nil })
			methodQueuePairs.Handle(&mux, func(ctx context.Context, _ *control.Request, _ uint32) ([]provider.QueuePair, error) {
				if test.reason == "" {
					<-ctx.Done()
				}
				return []provider.QueuePair{test.pair}, nil
			})
			conn := dial(t, mux.Serve)
			if _, err := methodLease.Call(patient(t), conn, leaseRequest{}); err != nil {
				t.Fatal(err)
			}
			if got := s.QueuePairs(t.Context()); len(got) != 0 {
				t.Errorf("%+v", got)
			}
			for found := test.reason == ""; !found; {
				select {
				case line := <-logged:
					found = strings.Contains(line, test.reason)
				case <-time.After(patience):
					t.Fatal("the log does not say why")
				}
			}
		})
	}
}
