package cm

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce/mad"
	"github.com/ndklab/ndklab/provider/clock"
)

// A network joins hosts, each with an Endpoint, in virtual time. It may lose,
// duplicate and, by jitter, reorder datagrams; the seed decides.
type network struct {
	t         failer
	clock     *clock.Virtual
	rand      *rand.Rand
	hosts     []*host
	delay     time.Duration
	jitter    time.Duration
	loss      float64
	duplicate float64
	drop      func(mad.Attribute) bool // takes chosen messages away
}

type failer interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

// A host drives one Endpoint as the provider does.
type host struct {
	*Endpoint
	net       *network
	addr      netip.Addr
	listening bool
	timer     clock.Timer
	heardAt   time.Duration // when connections have heard from heardFrom last
	heardFrom netip.Addr
	answered  time.Duration // when the last was sent that it has answered on those

	sent    []Datagram // everything that left
	events  []Event    // everything that happened
	records map[ID]Record
	onEvent func(Event) // told at once; may call back
}

const port = 7174

func newNetwork(t failer, seed uint64) *network {
	return &network{
		t:     t,
		clock: clock.NewVirtual(),
		rand:  rand.New(rand.NewPCG(seed, 1)),
		delay: time.Millisecond,
	}
}

func (n *network) add(addr string) *host { return n.addShare(addr, 0) }

func (n *network) addShare(addr string, share int) *host {
	h := &host{net: n, addr: netip.MustParseAddr(addr), listening: true, records: map[ID]Record{}}
	n.hosts = append(n.hosts, h)
	guid := 0x0200_00FF_FE00_0000 + uint64(len(n.hosts))
	h.Endpoint = New(Config{
		GUID: guid,
		Rand: rand.New(rand.NewPCG(guid, n.rand.Uint64())),
		Refuses: func(local, remote netip.AddrPort) mad.Reason {
			if h.listening && local.Port() == port {
				return 0
			}
			return mad.ReasonInvalidServiceID
		},
		Heard: func(remote netip.Addr, sentAt time.Duration) (time.Duration, bool) {
			return h.heardAt, remote == h.heardFrom && h.heardAt > sentAt && h.answered <= sentAt
		},
		Share: share,
		Track: true,
	})
	return h
}

// pair makes a network of two.
func pair(t failer) (n *network, active, passive *host) {
	n = newNetwork(t, 1)
	return n, n.add("10.0.0.1"), n.add("10.0.0.2")
}

func (n *network) now() time.Duration { return n.clock.Now() }

// carry takes a datagram to its destination, or not.
func (n *network) carry(d Datagram) {
	if n.drop != nil && n.drop(attribute(d)) {
		return
	}
	copies := 1
	if n.rand.Float64() < n.duplicate {
		copies = 2
	}
	for range copies {
		if n.rand.Float64() < n.loss {
			continue
		}
		delay := n.delay
		if n.jitter > 0 {
			delay += time.Duration(n.rand.Int64N(int64(n.jitter)))
		}
		i := slices.IndexFunc(n.hosts, func(h *host) bool { return h.addr == d.Remote })
		if i < 0 {
			continue
		}
		h := n.hosts[i]
		n.clock.AfterFunc(delay, func() {
			h.Handle(n.now(), d.Remote, d.Local, d.MAD[:])
			h.settle()
		})
	}
}

func attribute(d Datagram) mad.Attribute {
	h, err := mad.DecodeHeader(d.MAD[:])
	if err != nil {
		panic(err)
	}
	return h.Attribute
}

// settle does what the driver of an Endpoint owes it after each call.
func (h *host) settle() {
	h.net.t.Helper()
	queued := h.datagrams.items[h.datagrams.head:]
	for i := range queued {
		if slices.Contains(queued[:i], queued[i]) {
			h.net.t.Fatalf("%v: one call sends %v twice", h.addr, attribute(queued[i]))
		}
	}
	for {
		ev, ok := h.NextEvent()
		if !ok {
			break
		}
		h.events = append(h.events, ev)
		if h.onEvent != nil {
			h.onEvent(ev)
		}
	}
	for r, ok := h.NextChange(); ok; r, ok = h.NextChange() {
		if h.records[r.ID] = r; r.State == Closed {
			delete(h.records, r.ID)
		}
	}
	for {
		d, ok := h.NextDatagram()
		if !ok {
			break
		}
		h.sent = append(h.sent, d)
		h.net.carry(d)
	}
	if h.timer != nil {
		h.timer.Stop()
		h.timer = nil
	}
	if at, ok := h.Deadline(); ok {
		h.timer = h.net.clock.AfterFunc(at-h.net.now(), func() {
			h.timer = nil
			h.HandleTimeout(h.net.now())
			h.settle()
		})
	}
}

func (h *host) guid() uint64 { return h.config.GUID }

// The consumer's calls, with sensible parameters. Those that can fail return the
// Endpoint's error.

func (h *host) connectParams(to *host, qpn uint32) ConnectParams {
	return ConnectParams{
		Local:              netip.AddrPortFrom(h.addr, 40000),
		Remote:             netip.AddrPortFrom(to.addr, port),
		QPN:                qpn,
		StartingPSN:        0x123456,
		MTU:                5,
		ResponderResources: 16,
		InitiatorDepth:     8,
		RetryCount:         6,
		RNRRetryCount:      7,
		AckTimeout:         17,
		PrivateData:        []byte("from the active side"),
	}
}

func (h *host) connect(to *host, qpn uint32) ID {
	h.net.t.Helper()
	id, err := h.Connect(h.net.now(), h.connectParams(to, qpn))
	if err != nil {
		h.net.t.Fatalf("connect: %v", err)
	}
	h.settle()
	return id
}

func acceptParams(qpn uint32) AcceptParams {
	return AcceptParams{
		QPN:                qpn,
		StartingPSN:        0x654321,
		ResponderResources: 8,
		InitiatorDepth:     4,
		TargetAckDelay:     15,
		RNRRetryCount:      7,
		PrivateData:        []byte("from the passive side"),
	}
}

func (h *host) accept(id ID, qpn uint32) error {
	err := h.Accept(h.net.now(), id, acceptParams(qpn))
	h.settle()
	return err
}

func (h *host) complete(id ID) error {
	err := h.CompleteConnect(h.net.now(), id)
	h.settle()
	return err
}

func (h *host) reject(id ID, data string) error {
	err := h.Reject(h.net.now(), id, mad.ReasonConsumer, []byte(data))
	h.settle()
	return err
}

func (h *host) disconnect(id ID) error {
	err := h.Disconnect(h.net.now(), id)
	h.settle()
	return err
}

func (h *host) abandon(id ID) {
	h.Abandon(h.net.now(), id)
	h.settle()
}

func (h *host) noteTraffic(id ID) {
	h.NoteTraffic(h.net.now(), id)
	h.settle()
}

// must ends the test if a call failed.
func (h *host) must(err error) {
	h.net.t.Helper()
	if err != nil {
		h.net.t.Fatalf("%v at %v: %v", h.addr, h.net.now(), err)
	}
}

// wait lets time pass until the host has seen an event of type E that was not
// returned before.
func wait[E Event](h *host) E {
	h.net.t.Helper()
	var found E
	if !h.net.clock.RunUntil(func() bool {
		i := slices.IndexFunc(h.events, func(ev Event) bool { _, ok := ev.(E); return ok })
		if i < 0 {
			return false
		}
		found = h.events[i].(E)
		h.events = slices.Delete(h.events, i, i+1)
		return true
	}, 10*time.Minute) {
		h.net.t.Fatalf("%v: no %T came, but %v", h.addr, found, names(h.events))
	}
	return found
}

// none says that the host has seen no event that wait has not returned.
func (h *host) none() {
	h.net.t.Helper()
	if len(h.events) > 0 {
		h.net.t.Fatalf("%v: unexpected %v", h.addr, names(h.events))
	}
}

// empty lets everything end and says that nothing is left.
func (n *network) empty() {
	n.t.Helper()
	n.clock.Run(10 * time.Minute)
	for _, h := range n.hosts {
		if len(h.connections.byID) != 0 || len(h.connections.byPeer) != 0 || len(h.connections.byQPN) != 0 || len(h.connections.lookUps) != 0 || h.timers.waiting.Len() != 0 || h.Disconnecting() != 0 {
			n.t.Fatalf("%v: %d connections, %d peers, %d QPNs and %d timers are left",
				h.addr, len(h.connections.byID), len(h.connections.byPeer), len(h.connections.byQPN), h.timers.waiting.Len())
		}
		if len(h.records) != 0 {
			n.t.Fatalf("%v: somebody else still believes in %v", h.addr, h.records)
		}
	}
}

// count returns the number of messages of a kind that the host has sent.
func (h *host) count(a mad.Attribute) int {
	n := 0
	for _, d := range h.sent {
		if attribute(d) == a {
			n++
		}
	}
	return n
}

// decoder is a pointer to a message.
type decoder[M any] interface {
	*M
	Decode([]byte) error
}

// last decodes the last datagram that the host sent, which must be an M.
func last[M any, P decoder[M]](h *host) M {
	h.net.t.Helper()
	var m M
	if len(h.sent) == 0 {
		h.net.t.Fatalf("%v has sent nothing, want %T", h.addr, m)
	}
	d := h.sent[len(h.sent)-1]
	if err := P(&m).Decode(d.MAD[:]); err != nil {
		h.net.t.Fatalf("%v sent %v last, want %T", h.addr, attribute(d), m)
	}
	return m
}

// latest decodes the latest M that the host sent.
func latest[M any, P decoder[M]](h *host) M {
	h.net.t.Helper()
	var m M
	for i := len(h.sent) - 1; i >= 0; i-- {
		if P(&m).Decode(h.sent[i].MAD[:]) == nil {
			return m
		}
	}
	h.net.t.Fatalf("%v has sent no %T", h.addr, m)
	return m
}

// deliver hands a message to h as if it came from a host at that address.
func (h *host) deliver(from netip.Addr, m interface{ Append([]byte) []byte }) {
	h.Handle(h.net.now(), h.addr, from, m.Append(nil))
	h.settle()
}

func names(events []Event) []string {
	var s []string
	for _, ev := range events {
		s = append(s, fmt.Sprintf("%T", ev))
	}
	return s
}

// establish connects two hosts without faults in between.
func establish(active, passive *host, activeQPN, passiveQPN uint32) (a, p ID) {
	active.net.t.Helper()
	a = active.connect(passive, activeQPN)
	p = wait[ConnectRequest](passive).ID
	passive.must(passive.accept(p, passiveQPN))
	wait[ConnectReply](active)
	active.must(active.complete(a))
	wait[Established](passive)
	active.none()
	passive.none()
	return a, p
}

// ended waits for the last event of a connection at each host and says that it
// was the last, and that nothing is left.
func ended(t *testing.T, hosts ...*host) {
	t.Helper()
	for _, h := range hosts {
		wait[TimewaitOver](h)
	}
	hosts[0].net.empty()
	for _, h := range hosts {
		h.none()
	}
}
