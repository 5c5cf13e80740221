package provider_test

import (
	"runtime"
	"testing"

	"github.com/ndklab/ndklab/provider"
)

// TestIdleConnection: what a connection costs that has little to do, beside what
// its queues are asked to hold. There may be many of those.
func TestIdleConnection(t *testing.T) {
	const (
		connections = 64
		limit       = 4400 // bytes of one end, those of the test included
	)
	w := newWorld(t)
	client, server := w.hosts[0], w.hosts[1]
	qp := func(h *host) *provider.QP {
		return track(h, must(h.pd.CreateQP(h.cq, h.cq, nil, 1, 1, 1, 1, 0, nil, nil)))
	}
	open := func(port uint16) {
		a, b := *client, *server
		a.qp, b.qp, b.port = qp(client), qp(server), port
		w.join(&a, &b)
		w.want(a.qp.Write(nil, nil, 0, 0, 0), success)
		a.result(success)
		w.settle()
	}
	open(7000) // what the first alone makes: tables
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range uint16(connections) {
		open(7001 + i)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if each := int64(after.HeapAlloc-before.HeapAlloc) / (2 * connections); each > limit {
		t.Errorf("one end takes %d bytes", each)
	}
	runtime.KeepAlive(w)
}
