package verbs_test

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/verbs"
)

// TestNotification: an arm is for one entry to come, of any kind or of the solicited ones and errors.
func TestNotification(t *testing.T) {
	w := newWorld(t, 1)
	qps := w.pair(verbs.RC, nil)
	a, b := w.hosts[0], w.hosts[1]
	told := func(want int) {
		t.Helper()
		w.run()
		if b.notified != want {
			t.Errorf("told %d times, want %d", b.notified, want)
		}
	}
	send := func(solicited bool) {
		b.receive(qps[1], 100, 0, 10)
		r := a.request(rc.OpSend, 1, 0, 10, 0)
		r.Solicited = solicited
		w.post(qps[0], r)
	}
	send(true)
	told(0) // nobody asked
	b.cq.Arm(false)
	told(0) // what is there is not to come
	send(false)
	told(1)
	send(false)
	told(1) // once
	b.cq.Arm(true)
	send(false)
	told(1)
	send(true)
	told(2)
	b.cq.Arm(true)
	b.receive(qps[1], 100, 0, 5)
	w.post(qps[0], a.request(rc.OpSend, 1, 0, 10, 0)) // too long
	told(3)
}

// TestOverrun: one entry too many makes a CQ and its queue pairs unusable, and is told.
func TestOverrun(t *testing.T) {
	w := newWorld(t, 1)
	a := w.hosts[0]
	small, err := a.CreateCQ(2, nil)
	check(t, err)
	qps := w.pair(verbs.RC, func(c *verbs.QPConfig) { c.SendCQ = small })
	for i := range 3 {
		w.post(qps[0], a.request(rc.OpWrite, uint64(i), 0, 10, 0))
	}
	w.run()
	a.happened("cq error", "qp fatal")
	var c [5]verbs.Completion
	if n := small.Poll(c[:]); n != 2 {
		t.Errorf("%d entries", n)
	}
	if s, _ := qps[0].Query(); s.State != verbs.Error {
		t.Errorf("state %d", s.State)
	}
}

// TestResizeCQ: what is queued stays, and must have room.
func TestResizeCQ(t *testing.T) {
	w := newWorld(t, 1)
	qps := w.pair(verbs.RC, nil)
	a := w.hosts[0]
	for i := range 20 {
		w.post(qps[0], a.request(rc.OpWrite, uint64(i), 0, 10, 0))
	}
	w.run()
	refused(t, "too few", a.cq.Resize(19), syscall.EINVAL)
	refused(t, "none", a.cq.Resize(0), syscall.EINVAL)
	check(t, a.cq.Resize(20))
	var want []string
	for i := range 20 {
		want = append(want, fmt.Sprint("write ", i))
	}
	a.completed(want...)
}

// TestSharedReceives: queue pairs take from one queue, whose limit is told once.
func TestSharedReceives(t *testing.T) {
	w := newWorld(t, 1)
	a, b := w.hosts[0], w.hosts[1]
	srq, err := b.pd.CreateSRQ(10, 2, 2)
	check(t, err)
	shared := func(c *verbs.QPConfig) {
		if c.SendCQ == b.cq {
			c.SRQ = srq
		}
	}
	one, two := w.pair(verbs.RC, shared), w.pair(verbs.RC, shared)
	for i := range 3 {
		check(t, srq.Receive(verbs.ReceiveRequest{ID: uint64(100 + i), SGL: []rc.SGE{b.piece(i*100, 100)}}))
	}
	refused(t, "too many pieces", srq.Receive(verbs.ReceiveRequest{SGL: make([]rc.SGE, 3)}), syscall.EINVAL)
	_, err = one[1].Receive([]verbs.ReceiveRequest{{}})
	refused(t, "a receive of its own", err, syscall.EINVAL)
	w.post(one[0], a.request(rc.OpSend, 1, 0, 10, 0))
	b.completed("receive 100 of 10")
	b.happened()
	w.post(two[0], a.request(rc.OpSend, 2, 0, 10, 0))
	b.completed("receive 101 of 10")
	b.happened("srq limit")
	if _, _, limit := srq.Query(); limit != 0 {
		t.Errorf("limit %d after it was told", limit)
	}
	w.post(one[0], a.request(rc.OpSend, 3, 0, 10, 0))
	b.completed("receive 102 of 10")
	b.happened()
	refused(t, "a limit beyond the depth", srq.SetLimit(11), syscall.EINVAL)
	refused(t, "destroyed while in use", srq.Destroy(), syscall.EBUSY)
	w.modify(one[1], verbs.Attributes{State: verbs.Error}, 0)
	b.happened("last wqe")
	for _, qp := range []*verbs.QP{one[1], two[1]} {
		check(t, qp.Destroy())
	}
	for range 10 {
		check(t, srq.Receive(verbs.ReceiveRequest{}))
	}
	refused(t, "too many", srq.Receive(verbs.ReceiveRequest{}), syscall.ENOMEM)
	refused(t, "a depth that is too small", srq.Resize(9), syscall.EINVAL)
	check(t, srq.Resize(11))
	check(t, srq.Receive(verbs.ReceiveRequest{}))
	check(t, srq.Destroy())
}

// TestOrderOfEnds: what is in use cannot be destroyed.
func TestOrderOfEnds(t *testing.T) {
	w := newWorld(t, 1)
	qps := w.pair(verbs.RC, nil)
	a := w.hosts[0]
	refused(t, "a CQ with queue pairs", a.cq.Destroy(), syscall.EBUSY)
	refused(t, "a domain with objects", a.pd.Dealloc(), syscall.EBUSY)
	check(t, qps[0].Destroy())
	check(t, a.cq.Destroy())
	refused(t, "a domain with a region", a.pd.Dealloc(), syscall.EBUSY)
	check(t, a.mr.Deregister())
	check(t, a.pd.Dealloc())
	check(t, a.Close())
}

// TestLimits: the last of a kind can be made, and not one more.
func TestLimits(t *testing.T) {
	w := newWorld(t, 1)
	few := verbs.DefaultLimits()
	few.QPs, few.CQs, few.MRs, few.MWs, few.PDs, few.SRQs, few.AHs = 1, 1, 1, 1, 1, 1, 1
	c, err := verbs.Open(w.hosts[0].device, few, func(verbs.Event) {})
	check(t, err)
	var pd *verbs.PD
	var cq *verbs.CQ
	for _, make := range []struct {
		what string
		do   func() error
	}{
		{"PD", func() (err error) { made, err := c.AllocPD(); pd = orKeep(made, pd); return err }},
		{"CQ", func() (err error) { made, err := c.CreateCQ(1, nil); cq = orKeep(made, cq); return err }},
		{"MR", func() error { _, err := pd.RegisterMR(verbs.Bytes(nil), 0, 0, 0); return err }},
		{"MW", func() error { _, err := pd.AllocMW(verbs.Window2); return err }},
		{"SRQ", func() error { _, err := pd.CreateSRQ(1, 1, 0); return err }},
		{"AH", func() error {
			_, err := pd.CreateAH(verbs.Address{Remote: w.hosts[1].address, Port: 1})
			return err
		}},
		{"QP", func() error {
			_, err := pd.CreateQP(verbs.QPConfig{Type: verbs.RC, SendCQ: cq, ReceiveCQ: cq})
			return err
		}},
	} {
		check(t, make.do())
		refused(t, make.what, make.do(), syscall.ENOMEM)
	}
}

func orKeep[T any](made, before *T) *T {
	if made != nil {
		return made
	}
	return before
}

// TestRefusedCreations: what cannot be made.
func TestRefusedCreations(t *testing.T) {
	a := newWorld(t, 1).hosts[0]
	_, err := a.CreateCQ(0, nil)
	refused(t, "a CQ without entries", err, syscall.EINVAL)
	_, err = a.CreateCQ(1<<30, nil)
	refused(t, "a CQ of too many", err, syscall.EINVAL)
	for _, access := range []verbs.Access{verbs.AccessRemoteWrite, verbs.AccessRemoteAtomic, 1 << 10} {
		_, err = a.pd.RegisterMR(verbs.Bytes(nil), 0, 0, access)
		refused(t, fmt.Sprintf("access %#x", access), err, syscall.EINVAL)
	}
	_, err = a.pd.AllocMW(3)
	refused(t, "a window of another type", err, syscall.EINVAL)
	good := verbs.QPConfig{Type: verbs.RC, SendCQ: a.cq, ReceiveCQ: a.cq}
	for _, change := range []func(*verbs.QPConfig){
		func(c *verbs.QPConfig) { c.SendCQ = nil }, func(c *verbs.QPConfig) { c.ReceiveCQ = nil },
		func(c *verbs.QPConfig) { c.Capacity.SendDepth = 1 << 20 }, func(c *verbs.QPConfig) { c.Capacity.Inline = 1 << 20 },
		func(c *verbs.QPConfig) { c.Capacity.SendSGEs = 1000 }, func(c *verbs.QPConfig) { c.Capacity.ReceiveDepth = -1 },
	} {
		bad := good
		change(&bad)
		_, err = a.pd.CreateQP(bad)
		refused(t, fmt.Sprintf("%+v", bad), err, syscall.EINVAL)
	}
	good.Type = 8
	_, err = a.pd.CreateQP(good)
	refused(t, "raw packets", err, syscall.EOPNOTSUPP)
}

// TestDeviceFails: everything ends, and is told.
func TestDeviceFails(t *testing.T) {
	w := newWorld(t, 1)
	qps := w.pair(verbs.RC, nil)
	a := w.hosts[0]
	a.receive(qps[0], 100, 0, 10)
	a.device.Fail()
	a.completed(fmt.Sprint("receive 100 status ", verbs.FlushError))
	a.happened("device fatal", "qp fatal")
	_, err := a.AllocPD()
	refused(t, "a domain", err, syscall.EIO)
	_, err = verbs.Open(a.device, verbs.DefaultLimits(), func(verbs.Event) {})
	refused(t, "a context", err, syscall.EIO)
}

// TestFlushOfThoseTaken: of receives that are posted in Error, those before one that is refused are flushed, too.
func TestFlushOfThoseTaken(t *testing.T) {
	for _, kind := range []verbs.QPType{verbs.RC, verbs.UC, verbs.UD} {
		w := newWorld(t, 1)
		a := w.hosts[0]
		qp := w.pair(kind, nil)[0]
		w.modify(qp, verbs.Attributes{State: verbs.Error}, 0)
		failed, err := qp.Receive([]verbs.ReceiveRequest{{ID: 1}, {ID: 2, SGL: make([]rc.SGE, 5)}})
		if refused(t, "too many pieces", err, syscall.EINVAL); failed != 1 {
			t.Errorf("receive %d", failed)
		}
		a.completed(fmt.Sprint("receive 1 status ", verbs.FlushError))
	}
}
