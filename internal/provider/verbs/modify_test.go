package verbs_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/verbs"
	"github.com/ndklab/ndklab/provider"
)

// A wiretap counts what a carrier is given to send by queue pairs.
type wiretap struct {
	provider.Carrier
	flows map[roce.Flow]int // packets, by flow without its port
	reads int               // of those, READ requests
}

func (c *wiretap) Send(flow roce.Flow, packets []roce.Packet) error {
	for i := range packets {
		if packets[i].Header.Opcode == roce.ReadRequest {
			c.reads++
		}
	}
	seen := flow
	seen.SourcePort = 0
	c.flows[seen] += len(packets)
	return c.Carrier.Send(flow, packets)
}

func newTapped(t *testing.T, addresses int) (*world, []*wiretap) {
	var taps []*wiretap
	w := newWorldAt(t, 1, addresses, func(c provider.Carrier) provider.Carrier {
		taps = append(taps, &wiretap{Carrier: c, flows: map[roce.Flow]int{}})
		return taps[len(taps)-1]
	})
	return w, taps
}

// drained takes queue pairs to SQD, changes them there, and has them send again.
func (w *world) drained(qps [2]*verbs.QP, change func(i int, a *verbs.Attributes), mask verbs.AttributeMask) {
	w.t.Helper()
	for _, qp := range qps {
		w.modify(qp, verbs.Attributes{State: verbs.SendQueueDrain}, 0)
	}
	w.run()
	for i, qp := range qps {
		a := verbs.Attributes{State: verbs.SendQueueDrain}
		change(i, &a)
		w.modify(qp, a, mask)
	}
	for _, qp := range qps {
		w.modify(qp, verbs.Attributes{State: verbs.ReadyToSend}, 0)
	}
}

// TestRedirect: in SQD the ends of a connection agree on other addresses.
func TestRedirect(t *testing.T) {
	for _, kind := range []verbs.QPType{verbs.RC, verbs.UC} {
		w, taps := newTapped(t, 2)
		qps := w.pair(kind, nil)
		a, b := w.hosts[0], w.hosts[1]
		w.post(qps[0], a.request(rc.OpWrite, 1, 0, 1000, 0))
		a.completed("write 1")
		clear(taps[0].flows)
		w.drained(qps, func(i int, to *verbs.Attributes) {
			to.Address = verbs.Address{Remote: addressOn(1-i, 1), GIDIndex: 1, Port: 1}
		}, verbs.MaskAddress)
		b.receive(qps[1], 100, 0, 2000)
		w.post(qps[0], a.request(rc.OpSend, 2, 0, 2000, 0))
		a.completed("send 2")
		b.completed("receive 100 of 2000")
		if n := taps[0].flows[roce.Flow{Local: addressOn(0, 1), Remote: addressOn(1, 1)}]; n != 2 || len(taps[0].flows) != 1 {
			t.Errorf("kind %d: sent by %v, want two packets from %v to %v", kind, taps[0].flows, addressOn(0, 1), addressOn(1, 1))
		}
		if got, _ := qps[0].Query(); got.Address.Remote != addressOn(1, 1) {
			t.Errorf("kind %d: leads to %v, want %v", kind, got.Address.Remote, addressOn(1, 1))
		}
	}
}

// TestReadsChanged: in SQD it changes how many READs may be outstanding.
func TestReadsChanged(t *testing.T) {
	w, taps := newTapped(t, 1)
	qps := w.pair(verbs.RC, nil)
	a := w.hosts[0]
	outstanding := func(want int) {
		t.Helper()
		taps[0].reads = 0
		var done []string
		for i := range uint64(12) {
			w.post(qps[0], a.request(rc.OpRead, i, 0, 10, 0))
			done = append(done, fmt.Sprint("read ", i))
		}
		w.clock.Run(5 * time.Microsecond)
		if taps[0].reads != want {
			t.Errorf("%d READs are outstanding, want %d", taps[0].reads, want)
		}
		a.completed(done...)
	}
	outstanding(4)
	for _, n := range []uint8{1, 9, 12, 3, 5} {
		w.drained(qps, func(_ int, to *verbs.Attributes) { to.MaxReads, to.MaxDestReads = n, 13-n }, verbs.MaskMaxReads|verbs.MaskMaxDestReads)
		outstanding(int(n))
	}
}

// TestChangedTooEarly: what depends on the send queue's being drained is refused before.
func TestChangedTooEarly(t *testing.T) {
	w := newWorld(t, 1)
	qps := w.pair(verbs.RC, nil)
	a := w.hosts[0]
	w.post(qps[0], a.request(rc.OpWrite, 1, 0, 100_000, 0))
	w.clock.Run(5 * time.Microsecond)
	w.modify(qps[0], verbs.Attributes{State: verbs.SendQueueDrain}, 0)
	to := verbs.Attributes{State: verbs.SendQueueDrain, MaxReads: 1, MaxDestReads: 1, Address: verbs.Address{Remote: w.hosts[1].address, Port: 1}}
	for _, mask := range []verbs.AttributeMask{verbs.MaskMaxReads, verbs.MaskMaxDestReads, verbs.MaskAddress} {
		refused(t, fmt.Sprintf("mask %#x", mask), qps[0].Modify(&to, mask|verbs.MaskState), syscall.EINVAL)
	}
	w.modify(qps[0], verbs.Attributes{State: verbs.SendQueueDrain, MinRNRTimer: 3}, verbs.MaskMinRNRTimer)
	a.completed("write 1")
	w.modify(qps[0], to, verbs.MaskMaxReads|verbs.MaskMaxDestReads|verbs.MaskAddress)
}

// TestSendQueueError: a request of an unreliable queue pair that fails ends those behind it and no more. It receives, and
// sends again when it is told to (IBTA Vol. 1, 10.3.1.6).
func TestSendQueueError(t *testing.T) {
	for _, kind := range []verbs.QPType{verbs.UC, verbs.UD} {
		for _, from := range []verbs.QPState{verbs.ReadyToSend, verbs.SendQueueDrain} {
			t.Run(fmt.Sprint(kind, " ", from), func(t *testing.T) { testSendQueueError(t, kind, from) })
		}
	}
}

func testSendQueueError(t *testing.T, kind verbs.QPType, from verbs.QPState) {
	w := newWorld(t, 1)
	qps := w.pair(kind, nil)
	a, b := w.hosts[0], w.hosts[1]
	overhead := 0
	suffix := ""
	if kind == verbs.UD {
		overhead, suffix = roce.GRHLen, " grh IPv4"
	}
	send := func(h *host, id uint64, offset int) verbs.SendRequest {
		r := h.request(rc.OpSend, id, offset, 100, 0)
		if kind == verbs.UD {
			r.AH, r.RemoteQPN, r.QKey = addressOf(h), qps[1].Number(), qkey
			if h == b {
				r.RemoteQPN = qps[0].Number()
			}
		}
		return r
	}
	state := func(want verbs.QPState) {
		t.Helper()
		if got, _ := qps[0].Query(); got.State != want {
			t.Errorf("state %d, want %d", got.State, want)
		}
	}
	flushed := func(id int) string { return fmt.Sprint("send ", id, " status ", verbs.FlushError) }
	for i := range uint64(2) {
		a.receive(qps[0], 200+i, 0, 200)
		b.receive(qps[1], 100+i, 0, 200)
	}
	if from == verbs.SendQueueDrain {
		w.modify(qps[0], verbs.Attributes{State: from}, 0)
	}
	w.post(qps[0], send(a, 1, 0), send(a, 2, size-50), send(a, 3, 0))
	if from == verbs.SendQueueDrain {
		a.completed()
		w.modify(qps[0], verbs.Attributes{State: verbs.ReadyToSend}, 0)
	}
	a.completed("send 1", fmt.Sprint("send 2 status ", verbs.LocalProtectionError), flushed(3))
	state(verbs.SendQueueError)
	if len(a.errors) != 1 {
		t.Errorf("told of %v, want one", a.errors)
	}
	a.happened()
	w.post(qps[0], send(a, 4, 0))
	w.post(qps[1], send(b, 5, 0))
	a.completed(flushed(4), fmt.Sprint("receive 200 of ", 100+overhead, suffix))
	refused(t, "to SQD", qps[0].Modify(&verbs.Attributes{State: verbs.SendQueueDrain}, verbs.MaskState), syscall.EINVAL)
	w.modify(qps[0], verbs.Attributes{State: verbs.ReadyToSend, CurrentState: verbs.SendQueueError}, verbs.MaskCurrentState)
	state(verbs.ReadyToSend)
	w.post(qps[0], send(a, 6, 0))
	a.completed("send 6")
	b.completed(fmt.Sprint("receive 100 of ", 100+overhead, suffix), "send 5", fmt.Sprint("receive 101 of ", 100+overhead, suffix))

	w.post(qps[0], send(a, 7, size-50))
	a.completed(fmt.Sprint("send 7 status ", verbs.LocalProtectionError))
	state(verbs.SendQueueError)
	w.modify(qps[0], verbs.Attributes{State: verbs.Error}, 0)
	a.completed(fmt.Sprint("receive 201 status ", verbs.FlushError))
}
