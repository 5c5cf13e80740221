package provider_test

import (
	"fmt"
	"testing"

	"github.com/ndklab/ndklab/provider"
)

// complete has n more receives complete on the CQ of h: what a test of CQs can
// have without a peer. Their contexts are next and those that follow.
func (w *world) complete(h *host, next, n int) {
	w.t.Helper()
	for i := range n {
		w.want(h.qp.Receive(next+i, nil), success)
		h.qp.Flush()
	}
}

func TestResize(t *testing.T) {
	const most = 8
	start := func(t *testing.T, depth uint32, flags provider.AdapterFlags) (*world, *host) {
		info := provider.DefaultAdapterInfo()
		info.MaxCqDepth = cqDepth
		info.AdapterFlags &^= flags
		w := newWorldOf(t, addresses, info)
		h := w.hosts[0]
		h.cq, h.notes = h.newCQ(depth)
		h.qp = h.newQP()
		return w, h
	}
	// Entries may lie anywhere in the queue when it is resized.
	for _, c := range []struct{ taken, queued, depth int }{
		{0, 0, 1}, {0, 5, 5}, {0, 5, 16}, {0, most, 16}, // at its start
		{5, 3, 3}, {5, 3, 16}, {2, 5, 7}, // in its middle, and up to its end
		{5, 4, 4}, {5, 5, 16}, {7, most, most}, {7, most, 9}, {1, most, 16}, {3, most - 1, 7}, // around its end
	} {
		t.Run(fmt.Sprintf("NDK-CQ-38 %d queued behind %d, to %d", c.queued, c.taken, c.depth), func(t *testing.T) {
			w, h := start(t, most, 0)
			w.complete(h, 0, c.taken)
			h.results(c.taken)
			w.complete(h, c.taken, c.queued)
			w.want(h.cq.Resize(uint32(c.depth), nil, nil), success)
			w.complete(h, c.taken+c.queued, c.depth-c.queued) // which must fit
			h.cq.Arm(provider.NotifyErrors)
			w.clock.Run(0)
			h.notes.notified(t)
			for i, r := range h.results(c.depth) {
				if r.RequestContext != c.taken+i {
					t.Fatalf("entry %v in place of %d", r.RequestContext, c.taken+i)
				}
			}
			w.silent(h.cq)
			// That many and no more.
			w.complete(h, 0, c.depth)
			h.notes.notified(t)
			w.complete(h, 0, 1)
			w.clock.Run(0)
			h.notes.notified(t, overflow)
		})
	}
	t.Run("NDK-CQ-39 too deep", func(t *testing.T) {
		w, h := start(t, most, 0)
		w.complete(h, 0, 3)
		w.want(h.cq.Resize(cqDepth+1, nil, nil), provider.StatusInvalidParameter)
		w.want(h.cq.Resize(0, nil, nil), provider.StatusInvalidParameter)
		w.complete(h, 3, most-3)
		h.results(most)
		w.want(h.cq.Resize(cqDepth, nil, nil), success)
	})
	t.Run("NDK-CQ-40 more are queued", func(t *testing.T) {
		w, h := start(t, most, 0)
		w.complete(h, 0, 5)
		w.want(h.cq.Resize(4, nil, nil), overflow)
		w.complete(h, 5, most-5)
		for i, r := range h.results(most) {
			if r.RequestContext != i {
				t.Fatalf("entry %v in place of %d", r.RequestContext, i)
			}
		}
	})
	t.Run("NDK-CQ-41 without the flag", func(t *testing.T) {
		w, h := start(t, most, provider.AdapterCQResize)
		w.want(h.cq.Resize(most, nil, nil), provider.StatusNotSupported)
		w.want(h.cq.Resize(0, nil, nil), provider.StatusNotSupported)
	})
	t.Run("a CQ that has failed", func(t *testing.T) {
		w, h := start(t, most, 0)
		w.complete(h, 0, most+1)
		w.want(h.cq.Resize(2*most, nil, nil), provider.StatusInvalidDeviceState)
		h.results(most)
	})
	t.Run("an arm stays", func(t *testing.T) {
		w, h := start(t, most, 0)
		h.cq.Arm(provider.NotifyAny)
		w.want(h.cq.Resize(2, nil, nil), success)
		w.settle()
		h.notes.notified(t)
		w.complete(h, 0, 1)
		w.clock.Run(0)
		h.notes.notified(t, success)
	})
}
