package verbs_test

import (
	"net/netip"
	"syscall"
	"testing"

	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/verbs"
)

// Datagrams to a multicast group are for the queue pairs that are attached to it, but for the one that sends.
func TestMulticast(t *testing.T) {
	w := newWorld(t, 1)
	qps := w.pair(verbs.UD, nil)
	a, b := w.hosts[0], w.hosts[1]
	group := netip.MustParseAddr("239.1.2.3")
	other := a.create(verbs.UD, nil)
	a.toInit(other)
	a.toReceive(other, qps[1])
	for _, qp := range []*verbs.QP{qps[0], other, qps[1], qps[1]} {
		check(t, qp.Attach(group))
	}
	ah, err := a.pd.CreateAH(verbs.Address{Remote: group, Port: 1})
	check(t, err)
	send := a.request(rc.OpSend, 1, 1000, 1000, 0)
	send.AH, send.RemoteQPN, send.QKey = ah, 0xFFFFFF, qkey
	a.receive(qps[0], 10, 0, 2000)
	a.receive(other, 11, 2000, 2000)
	b.receive(qps[1], 12, 0, 2000)
	b.receive(qps[1], 13, 2000, 2000)
	w.post(qps[0], send)
	a.completed("send 1", "receive 11 of 1040 grh IPv4")
	b.completed("receive 12 of 1040 grh IPv4")
	if to := netip.AddrFrom4([4]byte(b.memory[36:])); to != group {
		t.Errorf("the header before the data is to %v, want the group", to)
	}

	refused(t, "destroy while attached", qps[1].Destroy(), syscall.EBUSY)
	check(t, qps[1].Detach(group))
	check(t, other.Detach(group))
	w.post(qps[0], send)
	a.completed("send 1")
	b.completed()
	refused(t, "detach twice", qps[1].Detach(group), syscall.EINVAL)
	refused(t, "attach to no group", qps[1].Attach(b.address), syscall.EINVAL)
	refused(t, "attach a connection", a.create(verbs.RC, nil).Attach(group), syscall.EINVAL)
	check(t, qps[1].Destroy())
	check(t, other.Attach(group))
	check(t, a.Close())
}
