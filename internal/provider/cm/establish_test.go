package cm

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

var compareAddrs = cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{})

func diff(t *testing.T, what string, want, got any) {
	t.Helper()
	if d := cmp.Diff(want, got, compareAddrs); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// TestLife follows a connection from Connect to TimewaitOver and looks at every
// field of every message and event on the way.
func TestLife(t *testing.T) {
	for _, addrs := range [][2]string{{"10.0.0.1", "10.0.0.2"}, {"fd00::1", "fd00::2"}} {
		t.Run(addrs[0], func(t *testing.T) {
			n := newNetwork(t, 1)
			active, passive := n.add(addrs[0]), n.add(addrs[1])

			a := active.connect(passive, 0x11)
			q := last[mad.REQ](active)
			wantREQ := mad.REQ{
				TransactionID:         1<<32 | uint64(a),
				LocalID:               uint32(a),
				ServiceID:             0x01060000 + port,
				GUID:                  active.guid(),
				QPN:                   0x11,
				ResponderResources:    16,
				InitiatorDepth:        8,
				RemoteResponseTimeout: 20,
				StartingPSN:           0x123456,
				LocalResponseTimeout:  20,
				RetryCount:            6,
				PKey:                  0xFFFF,
				MTU:                   5,
				RNRRetryCount:         7,
				MaxCMRetries:          15,
				Primary: mad.Path{
					LocalLID: 0xFFFF, RemoteLID: 0xFFFF,
					LocalGID: active.addr, RemoteGID: passive.addr,
					FlowLabel: (40000*31 + port) & 0xFFFFF, HopLimit: 64, AckTimeout: 17,
				},
			}
			mad.IPHeader{Source: netip.AddrPortFrom(active.addr, 40000), Destination: passive.addr}.Put(wantREQ.PrivateData[:])
			copy(wantREQ.PrivateData[36:], "from the active side")
			diff(t, "REQ", wantREQ, q)

			request := wait[ConnectRequest](passive)
			p := request.ID
			wantRequest := ConnectRequest{
				ID:                 p,
				Local:              netip.AddrPortFrom(passive.addr, port),
				Remote:             netip.AddrPortFrom(active.addr, 40000),
				GUID:               active.guid(),
				QPN:                0x11,
				StartingPSN:        0x123456,
				MTU:                5,
				ResponderResources: 16,
				InitiatorDepth:     8,
				RetryCount:         6,
				RNRRetryCount:      7,
				AckTimeout:         17,
			}
			copy(wantRequest.PrivateData[:], "from the active side")
			diff(t, "ConnectRequest", wantRequest, request)

			passive.must(passive.accept(p, 0x12))
			wantREP := mad.REP{
				TransactionID:      q.TransactionID,
				LocalID:            uint32(p),
				RemoteID:           uint32(a),
				QPN:                0x12,
				StartingPSN:        0x654321,
				ResponderResources: 8,
				InitiatorDepth:     4,
				TargetAckDelay:     15,
				RNRRetryCount:      7,
				GUID:               passive.guid(),
			}
			copy(wantREP.PrivateData[:], "from the passive side")
			diff(t, "REP", wantREP, last[mad.REP](passive))

			wantReply := ConnectReply{
				ID:                 a,
				GUID:               passive.guid(),
				QPN:                0x12,
				StartingPSN:        0x654321,
				ResponderResources: 8,
				InitiatorDepth:     4,
				TargetAckDelay:     15,
				RNRRetryCount:      7,
			}
			copy(wantReply.PrivateData[:], "from the passive side")
			diff(t, "ConnectReply", wantReply, wait[ConnectReply](active))

			// The consumer has not completed the connection, so no RTU (roce.md 15.2).
			if got := active.count(mad.AttributeRTU); got != 0 {
				t.Fatalf("%d RTUs before CompleteConnect", got)
			}
			active.must(active.complete(a))
			diff(t, "RTU", mad.RTU{TransactionID: q.TransactionID, LocalID: uint32(a), RemoteID: uint32(p)}, last[mad.RTU](active))
			diff(t, "Established", Established{ID: p}, wait[Established](passive))

			n.clock.Run(time.Hour)
			active.none()
			passive.none()
			if len(active.sent) != 2 || len(passive.sent) != 1 {
				t.Fatalf("%d and %d datagrams were sent for REQ, REP and RTU", len(active.sent), len(passive.sent))
			}

			active.must(active.disconnect(a))
			dreq := last[mad.DREQ](active)
			diff(t, "DREQ", mad.DREQ{TransactionID: 2<<32 | uint64(a), LocalID: uint32(a), RemoteID: uint32(p), RemoteQPN: 0x12}, dreq)
			diff(t, "Disconnected", Disconnected{ID: p}, wait[Disconnected](passive))
			diff(t, "DREP", mad.DREP{TransactionID: dreq.TransactionID, LocalID: uint32(p), RemoteID: uint32(a)}, last[mad.DREP](passive))
			diff(t, "DisconnectDone", DisconnectDone{ID: a}, wait[DisconnectDone](active))

			done := n.now()
			diff(t, "TimewaitOver", TimewaitOver{ID: a, QPN: 0x11}, wait[TimewaitOver](active))
			if got, want := n.now()-done, mad.Timeout(17).Duration(); got != want {
				t.Errorf("timewait of %v, want %v", got, want)
			}
			n.empty()
		})
	}
}

// TestOrdinaryMessageCount pins that nothing is repeated when nothing is lost,
// on a path with a round trip just below the first repetition.
func TestOrdinaryMessageCount(t *testing.T) {
	n, active, passive := pair(t)
	n.delay = 49 * time.Millisecond
	a, _ := establish(active, passive, 0x11, 0x12)
	active.must(active.disconnect(a))
	wait[DisconnectDone](active)
	if len(active.sent) != 3 || len(passive.sent) != 2 {
		t.Errorf("%d and %d datagrams were sent, want 3 and 2", len(active.sent), len(passive.sent))
	}
}

func TestParameterErrors(t *testing.T) {
	_, active, passive := pair(t)
	for name, change := range map[string]func(*ConnectParams){
		"private data":    func(p *ConnectParams) { p.PrivateData = make([]byte, 57) },
		"families":        func(p *ConnectParams) { p.Remote = netip.MustParseAddrPort("[fd00::2]:7174") },
		"no local":        func(p *ConnectParams) { p.Local = netip.AddrPort{} },
		"no addresses":    func(p *ConnectParams) { p.Local, p.Remote = netip.AddrPort{}, netip.AddrPort{} },
		"no remote at v6": func(p *ConnectParams) { p.Local, p.Remote = netip.MustParseAddrPort("[fd00::2]:1"), netip.AddrPort{} },
		"no local to v6":  func(p *ConnectParams) { p.Local, p.Remote = netip.AddrPort{}, netip.MustParseAddrPort("[fd00::2]:1") },
	} {
		p := active.connectParams(passive, 0x11)
		change(&p)
		if _, err := active.Connect(0, p); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	active.settle()
	if len(active.sent) != 0 || len(active.connections.byID) != 0 {
		t.Error("a refused Connect left something behind")
	}
	p := active.connectParams(passive, 0x11)
	p.PrivateData = make([]byte, 56)
	if _, err := active.Connect(0, p); err != nil {
		t.Errorf("56 bytes of private data: %v", err)
	}
	active.settle()
	id := wait[ConnectRequest](passive).ID
	if err := passive.Accept(0, id, AcceptParams{PrivateData: make([]byte, 197)}); err == nil {
		t.Error("Accept took 197 bytes of private data")
	}
	if err := passive.Reject(0, id, mad.ReasonConsumer, make([]byte, 149)); err == nil {
		t.Error("Reject took 149 bytes of private data")
	}
	passive.must(passive.Reject(0, id, mad.ReasonConsumer, make([]byte, 148)))
	passive.settle()
	active.connect(passive, 0x12)
	passive.must(passive.Accept(0, wait[ConnectRequest](passive).ID, AcceptParams{PrivateData: make([]byte, 196)}))
}

// TestTimeouts has those of the configuration, and where it has none the defaults.
func TestTimeouts(t *testing.T) {
	for _, test := range []struct{ timeout, establish, wantTimeout, wantEstablish time.Duration }{
		{0, 0, 30 * time.Second, 90 * time.Second},
		{time.Second, time.Minute, time.Second, time.Minute},
	} {
		e := New(Config{Rand: rand.New(rand.NewPCG(1, 1)), Timeout: test.timeout, EstablishTimeout: test.establish})
		diff(t, "timeout", test.wantTimeout, e.config.Timeout)
		diff(t, "timeout to establish", test.wantEstablish, e.config.EstablishTimeout)
	}
}

// TestQueue: a queue removes only what waits, and takes no more space than what
// waited at once.
func TestQueue(t *testing.T) {
	var q queue[int]
	for i := range 6 {
		q.push(i)
	}
	q.pop()
	q.pop()
	q.remove(func(i int) bool { return i == 3 })
	var got []int
	for i, ok := q.pop(); ok; i, ok = q.pop() {
		got = append(got, i)
	}
	diff(t, "what is left", []int{2, 4, 5}, got)
	for range 1000 {
		q.push(1)
		q.pop()
	}
	if cap(q.items) > 8 {
		t.Errorf("space for %d", cap(q.items))
	}
}

// TestWrongState calls everything where it does not fit.
func TestWrongState(t *testing.T) {
	_, active, passive := pair(t)
	refused := func(id ID, what string, calls map[string]func(ID) error) {
		t.Helper()
		for name, call := range calls {
			if err := call(id); err != ErrState {
				t.Errorf("%s %s: got %v, want ErrState", name, what, err)
			}
		}
	}
	calls := func(h *host, without ...string) map[string]func(ID) error {
		m := map[string]func(ID) error{
			"Accept":          func(id ID) error { return h.accept(id, 1) },
			"Reject":          func(id ID) error { return h.reject(id, "") },
			"CompleteConnect": h.complete,
			"Disconnect":      h.disconnect,
		}
		for _, name := range without {
			delete(m, name)
		}
		return m
	}
	refused(12345, "of an unknown connection", calls(active))
	active.abandon(12345)
	active.noteTraffic(12345)

	a := active.connect(passive, 0x11)
	refused(a, "after Connect", calls(active))
	p := wait[ConnectRequest](passive).ID
	refused(p, "of a request", calls(passive, "Accept", "Reject"))
	passive.noteTraffic(p)
	passive.must(passive.accept(p, 0x12))
	refused(p, "after Accept", calls(passive))
	wait[ConnectReply](active)
	refused(a, "of a reply", calls(active, "CompleteConnect", "Reject"))
	active.must(active.complete(a))
	wait[Established](passive)
	refused(a, "when established", calls(active, "Disconnect"))
	refused(p, "when established", calls(passive, "Disconnect"))
	active.must(active.disconnect(a))
	refused(a, "when disconnecting", calls(active))
	wait[DisconnectDone](active)
	refused(a, "when disconnected", calls(active))
	wait[Disconnected](passive)
	ended(t, active, passive)
	refused(a, "after TimewaitOver", calls(active))
}

// TestLoopback connects an endpoint with itself.
func TestLoopback(t *testing.T) {
	n := newNetwork(t, 1)
	h := n.add("10.0.0.1")
	for range 3 {
		a, p := establish(h, h, 0x11, 0x12)
		if a == p {
			t.Fatal("both ends have one ID")
		}
		h.must(h.disconnect(a))
		wait[Disconnected](h)
		wait[DisconnectDone](h)
		wait[TimewaitOver](h)
		wait[TimewaitOver](h)
		h.none()
	}
	n.empty()
}

// TestIDs checks that IDs are cyclic, never 0, skip those in use and are of
// their share.
func TestIDs(t *testing.T) {
	for _, test := range []struct {
		share int
		want  [5]ID // of which the first is where the search begins
	}{
		{0, [5]ID{0x3FFFFFE, 0x3FFFFFF, 1, 2, 3}},
		{1, [5]ID{0x7FFFFFE, 0x7FFFFFF, 0x4000000, 0x4000001, 0x4000002}},
		{63, [5]ID{0xFFFFFFFE, 0xFFFFFFFF, 0xFC000000, 0xFC000001, 0xFC000002}},
	} {
		n, _, passive := pair(t)
		active := n.addShare("10.0.0.3", test.share)
		if s := active.connections.nextID.Share(); s != test.share {
			t.Errorf("share %d begins with an ID of share %d", test.share, s)
		}
		active.connections.nextID = test.want[0]
		var got [5]ID
		for i := range got[:4] {
			got[i] = active.connect(passive, 0x11+uint32(i))
		}
		active.connections.nextID = test.want[1]
		got[4] = active.connect(passive, 0x20) // after a round
		diff(t, "IDs", test.want, got)
	}
	other := newNetwork(t, 2).add("10.0.0.1")
	if other.connections.nextID == newNetwork(t, 3).add("10.0.0.1").connections.nextID {
		t.Error("IDs start at the same place for different seeds")
	}
}
