package lease

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/provider/transport"
	"github.com/ndklab/ndklab/provider"
)

// The queue pairs of verbs are in the memory of the process that made them. The owner asks
// for them, page by page.

// pageOfPairs bounds the queue pairs that a process lists at once: they fit in longestMessage.
const pageOfPairs = 128

// mostPairs bounds how many are listed of one process.
const mostPairs = 1 << 14

// A HeldQueuePair is a queue pair of verbs and the process that has it.
type HeldQueuePair struct {
	provider.QueuePair
	OwnerPID uint32 // in the owner's PID namespace; 0: outside of it
}

// QueuePairs lists the queue pairs of verbs of all processes that answer at once, by
// process and number; of one that is stopped there are none.
func (s *Server) QueuePairs(ctx context.Context) []HeldQueuePair {
	ctx, cancel := context.WithTimeout(ctx, s.answering)
	defer cancel()
	var asking sync.WaitGroup
	var mu sync.Mutex // guards all
	var all []HeldQueuePair
	for h := range s.current() {
		asking.Go(func() {
			pairs := h.askQueuePairs(ctx)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, pairs...)
		})
	}
	asking.Wait()
	slices.SortFunc(all, func(a, b HeldQueuePair) int {
		return cmp.Or(cmp.Compare(a.OwnerPID, b.OwnerPID), cmp.Compare(a.Number, b.Number))
	})
	return all
}

// askQueuePairs has the process list its queue pairs. An entry that it cannot have ends
// its lease.
func (h *holder) askQueuePairs(ctx context.Context) (all []HeldQueuePair) {
	h.mu.Lock()
	share, pid := h.share, uint32(h.pid)
	h.mu.Unlock()
	for next := uint32(0); len(all) < mostPairs; {
		page, err := methodQueuePairs.Call(ctx, h.conn, next)
		if err != nil || len(page) == 0 {
			return all
		}
		for i := range page {
			p := &page[i]
			if why := checkListed(p, next, share); why != nil {
				_ = h.endForViolation(h.conn, why) // the lease is over, and says why in the log
				return nil
			}
			next = p.Number + 1
			all = append(all, HeldQueuePair{*p, pid})
		}
	}
	return all
}

// checkListed returns an error if a process of a share cannot have listed a queue pair, of those from number next on.
func checkListed(p *provider.QueuePair, next uint32, share int) error {
	const longest = 16 // bytes of a word
	switch {
	case p.Number < next || int(p.Number>>transport.ShareShift) != share:
		return fmt.Errorf("queue pair %#x is not of its share, or not in its turn", p.Number)
	case len(p.Transport) > longest || len(p.State) > longest || p.Local.Zone() != "" || p.Remote.Zone() != "":
		return fmt.Errorf("queue pair %#x is not of a device's making", p.Number)
	}
	return nil
}

// queuePairs answers the owner: those of this process from a number on.
func (t *client) queuePairs(_ context.Context, _ *control.Request, first uint32) ([]provider.QueuePair, error) {
	device := t.openDevice()
	if device == nil {
		return nil, nil
	}
	all := device.QueuePairs()
	i, _ := slices.BinarySearchFunc(all, first, func(p provider.QueuePair, number uint32) int { return cmp.Compare(p.Number, number) })
	return all[i:min(len(all), i+pageOfPairs)], nil
}
