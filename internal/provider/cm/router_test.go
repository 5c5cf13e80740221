package cm

import (
	"net/netip"
	"testing"

	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

func TestRoute(t *testing.T) {
	local, remote := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	const ours, theirs = 5<<shareShift | 77, 9<<shareShift | 78
	holders := map[netip.AddrPort]int{netip.AddrPortFrom(local, port): 3}
	timeout := &mad.REJ{LocalID: theirs, Reason: mad.ReasonTimeout}
	timeout.SetGUID(1)
	stranger := &mad.REJ{LocalID: theirs, Reason: mad.ReasonTimeout}
	stranger.SetGUID(2)
	late := &mad.REJ{LocalID: theirs, RemoteID: ours, Reason: mad.ReasonTimeout}
	late.SetGUID(1)
	req := func(guid uint64, port uint16) *mad.REQ {
		return &mad.REQ{LocalID: theirs, GUID: guid, ServiceID: mad.ServiceID(port)}
	}
	another := &mad.REJ{LocalID: theirs, Reason: mad.ReasonNoResources} // whose ARI is no GUID
	another.SetGUID(1)
	type message interface{ Append([]byte) []byte }
	for _, test := range []struct {
		name string
		m    message
		want int
	}{
		{"REQ", req(1, port), 3},
		{"REQ, nobody has the port", req(4, port+1), 0},
		{"REQ, another service", &mad.REQ{LocalID: theirs, GUID: 5, ServiceID: 1}, 0},
		{"REP", &mad.REP{LocalID: theirs, RemoteID: ours}, 5},
		{"RTU", &mad.RTU{LocalID: theirs, RemoteID: ours}, 5},
		{"MRA", &mad.MRA{LocalID: theirs, RemoteID: ours}, 5},
		{"REJ", &mad.REJ{LocalID: theirs, RemoteID: ours}, 5},
		{"REJ of a REQ, which has no ID", &mad.REJ{RemoteID: ours}, 5},
		{"REJ for timeout, with our ID", late, 5},
		{"REJ for timeout, of the REQ above", timeout, 3},
		{"REJ for timeout, of an unknown REQ", stranger, 0},
		{"REJ for another reason, of no REQ", another, 0},
		{"DREQ", &mad.DREQ{LocalID: theirs, RemoteID: ours}, 5},
		{"DREP", &mad.DREP{LocalID: theirs, RemoteID: ours}, 5},
		{"SIDR_REQ", &mad.SIDRREQ{RequestID: ours, ServiceID: mad.DatagramServiceID(port)}, 3},
		{"SIDR_REQ, nobody has the port", &mad.SIDRREQ{RequestID: ours, ServiceID: mad.DatagramServiceID(port + 1)}, 0},
		{"SIDR_REQ, another service", &mad.SIDRREQ{RequestID: ours}, 0},
		{"SIDR_REP", &mad.SIDRREP{RequestID: ours}, 5},
	} {
		r := Router{Holder: func(a netip.AddrPort) (int, bool) {
			if share, ok := holders[a]; ok {
				return share, true
			}
			return -1, false
		}}
		r.Route(local, remote, req(1, port).Append(nil))
		if got := r.Route(local, remote, test.m.Append(nil)); got != test.want {
			t.Errorf("%s: share %d, want %d", test.name, got, test.want)
		}
		if got := r.Route(local, remote, test.m.Append(nil)[1:]); got != 0 {
			t.Errorf("%s, malformed: share %d", test.name, got)
		}
	}
}

// TestRouteDuplicates: the duplicate of a REQ goes where the first went,
// whoever has the port by then, unless that one is gone.
func TestRouteDuplicates(t *testing.T) {
	local, remote := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	holder := 3
	r := Router{Holder: func(netip.AddrPort) (int, bool) { return holder, holder >= 0 }}
	req := func(id uint32) int {
		return r.Route(local, remote, (&mad.REQ{LocalID: id, GUID: 1, ServiceID: mad.ServiceID(port)}).Append(nil))
	}
	for _, step := range []struct {
		name   string
		holder int
		id     uint32
		want   int
	}{
		{"first", 3, 1, 3},
		{"port free", -1, 1, 3},
		{"port another's", 0, 1, 3},
		{"another REQ", 0, 2, 0},
		{"nobody", -1, 4, 0},
		{"somebody since", 2, 4, 2},
	} {
		holder = step.holder
		if got := req(step.id); got != step.want {
			t.Errorf("%s: share %d, want %d", step.name, got, step.want)
		}
	}
	r.Forget(3)
	holder = 4
	if got := req(1); got != 4 {
		t.Errorf("after the end of share 3: share %d", got)
	}
	if got := req(2); got != 0 {
		t.Errorf("after the end of share 3, of another's: share %d", got)
	}
	for id := range uint32(2*rememberedREQs + 7) {
		req(100 + id)
	}
	if len(r.requests) != rememberedREQs || len(r.recent) != rememberedREQs {
		t.Errorf("%d REQs are remembered, in a ring of %d", len(r.requests), len(r.recent))
	}
	holder = 5
	if got := req(2); got != 5 {
		t.Errorf("long after: share %d", got)
	}
	if got := req(100 + 2*rememberedREQs + 6); got != 4 {
		t.Errorf("the latest: share %d", got)
	}
}
