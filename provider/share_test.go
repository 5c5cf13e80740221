package provider_test

import (
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/ndklab/ndklab/internal/provider/cm"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/roce/mad"
	"github.com/ndklab/ndklab/internal/provider/sharing"
	"github.com/ndklab/ndklab/internal/provider/sim"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
)

// A sharedWorld is a world whose first host's device is shared with processes,
// as package lease does it with real ones.
type sharedWorld struct {
	*world
	memory       []byte          // of the ledger
	ledger       *sharing.Ledger // the owner's
	carrier      *sim.Carrier
	capabilities provider.Capabilities
	processes    map[int]*process // by share
	forwarded    int
	lose         func() bool                             // whether to lose what is forwarded
	wrap         func(provider.Carrier) provider.Carrier // of processes; nil: as it is
}

// A process has a share of the first host's device.
type process struct {
	*host
	share   int
	carrier *sim.Carrier
	records map[cm.ID]cm.Record // what it has reported
	dead    bool
	timers  []clock.Timer
}

// Now, AfterFunc and Go are the process's clock, in which nothing happens after
// its death.
func (p *process) Now() time.Duration { return p.world.clock.Now() }

func (p *process) AfterFunc(d time.Duration, f func()) clock.Timer {
	t := p.world.clock.AfterFunc(d, p.alive(f))
	p.timers = append(p.timers, t)
	return t
}

func (p *process) Go(f func()) { p.world.clock.Go(p.alive(f)) }

func (p *process) alive(f func()) func() {
	return func() {
		if !p.dead {
			f()
		}
	}
}

func newSharedWorld(t *testing.T, capabilities provider.Capabilities, addresses [2]netip.Addr) *sharedWorld {
	t.Helper()
	w := &sharedWorld{world: newEmptyWorld(t), capabilities: capabilities, processes: map[int]*process{}}
	size := sharing.Size(1)
	w.memory = unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(make([]uint64, size/8)))), size)
	w.carrier = w.network.Attach(mtu, addresses[0])
	cfg := w.configure(w.carrier, 0)
	w.ledger, cfg.Share.Forward = cfg.Share.Ledger, w.forward
	w.hosts[0] = w.equip(w.world.start(cfg), addresses[0])
	w.hosts[1] = w.equip(w.openAt(addresses[1], provider.DefaultAdapterInfo()), addresses[1])
	w.network.Tap(w.checkReported)
	t.Cleanup(w.endProcesses)
	return w
}

// checkReported says of every management datagram of a process about a connection
// that it keeps that the process has reported the connection before.
func (w *sharedWorld) checkReported(_ time.Duration, packet []byte) {
	var p roce.Received
	if err := new(roce.Verifier).DecodeIP(packet, &p); err != nil || p.Header.DestQPN != mad.QPN {
		return
	}
	var req mad.REQ
	var rep mad.REP
	var rtu mad.RTU
	id, state := cm.ID(0), cm.State(0)
	switch {
	case req.Decode(p.Payload) == nil:
		id, state = cm.ID(req.LocalID), cm.Requesting
	case rep.Decode(p.Payload) == nil:
		id, state = cm.ID(rep.LocalID), cm.Accepting
	case rtu.Decode(p.Payload) == nil:
		id, state = cm.ID(rtu.LocalID), cm.Connected
	default:
		return
	}
	if from := w.processes[id.Share()]; from != nil && p.Flow.Remote == w.hosts[0].address {
		if r, ok := from.records[id]; !ok || r.State != state {
			w.t.Errorf("a message of %v is sent while the connection is on record as %v (%v)", state, r, ok)
		}
	}
}

// configure makes the configuration of a share's device.
func (w *sharedWorld) configure(carrier provider.Carrier, share int) provider.Config {
	w.t.Helper()
	ledger, err := sharing.New(w.memory, carrier.Addresses(), share)
	if err != nil {
		w.t.Fatal(err)
	}
	cfg := w.config(carrier)
	cfg.Share, cfg.GUID, cfg.Capabilities = &sharing.Config{Ledger: ledger}, 0x02, w.capabilities
	return cfg
}

func (w *sharedWorld) forward(share int, flow roce.Flow, datagram []byte) bool {
	p := w.processes[share]
	if p == nil {
		return false
	}
	w.forwarded++
	if w.lose == nil || !w.lose() {
		datagram = slices.Clone(datagram)
		w.clock.Go(func() {
			if w.processes[share] == p {
				p.device.HandIn(flow, datagram)
			}
		})
	}
	return true
}

// start starts a process. Its service has a port of its own.
func (w *sharedWorld) start(share int) *process {
	w.t.Helper()
	p := w.launch(share)
	p.host = w.equip(p.device, w.hosts[0].address)
	p.port = 7000 + uint16(share)
	p.fill(share % 4)
	return p
}

// launch starts a process that makes no objects.
func (w *sharedWorld) launch(share int) *process {
	w.t.Helper()
	p := &process{share: share, carrier: w.carrier.Share(share), records: map[cm.ID]cm.Record{}}
	p.host = &host{world: w.world}
	cfg := w.configure(p.carrier, share)
	cfg.Share.Report, cfg.Clock = p.report, p
	if w.wrap != nil {
		cfg.Carrier = w.wrap(cfg.Carrier)
	}
	p.device = w.world.start(cfg)
	w.processes[share] = p
	return p
}

func (p *process) report(r cm.Record) {
	if p.records[r.ID] == r {
		p.world.t.Errorf("reported twice: %+v", r)
	}
	if p.records[r.ID] = r; r.State == cm.Closed {
		delete(p.records, r.ID)
	}
}

// kill ends a process without a word; done is called when its share is free.
func (w *sharedWorld) kill(p *process, done func()) {
	w.t.Helper()
	if err := p.carrier.Close(); err != nil {
		w.t.Fatal(err)
	}
	p.dead = true
	for _, t := range p.timers {
		t.Stop()
	}
	delete(w.processes, p.share)
	w.ledger.Clear(p.share)
	w.hosts[0].device.Manager().TakeOver(p.share, slices.Collect(maps.Values(p.records)), done)
}

// endProcesses closes what processes have that live.
func (w *sharedWorld) endProcesses() {
	if w.t.Failed() {
		return
	}
	w.path.Down, w.path.Loss = false, 0
	for _, p := range w.processes {
		ended := false
		p.endAll(func() { ended = true })
		for len(*p.open) > 0 {
			p.close((*p.open)[0])
		}
		w.wait("the end of a process", func() bool { return ended })
		if len(p.records) > 0 {
			w.t.Errorf("share %d has ended, but %v are still on record", p.share, p.records)
		}
	}
}

// exchange sends a message each way and checks that it arrives.
func (w *sharedWorld) exchange(a, b *host) {
	w.t.Helper()
	for _, way := range [][2]*host{{a, b}, {b, a}} {
		from, to := way[0], way[1]
		w.want(to.qp.Receive(to, to.at(0, 4096)), provider.StatusSuccess)
		w.want(from.qp.Send(from, from.at(8192, 4096), 0), provider.StatusSuccess)
		from.result(provider.StatusSuccess)
		if r := to.result(provider.StatusSuccess); r.BytesTransferred != 4096 {
			w.t.Fatalf("%d bytes arrived", r.BytesTransferred)
		}
		if !slices.Equal(from.memory[8192:8192+4096], to.memory[:4096]) {
			w.t.Fatal("other bytes arrived than were sent")
		}
	}
}

// TestSharedDevice connects processes of a device with each other, with its owner
// and with a peer, both ways.
func TestSharedDevice(t *testing.T) {
	for name, at := range map[string][2]netip.Addr{"IPv4": addresses, "IPv6": addresses6} {
		t.Run(name, func(t *testing.T) {
			for _, test := range []struct {
				name string
				ends func(w *sharedWorld) (client, server *host)
			}{
				{"process to peer", func(w *sharedWorld) (*host, *host) { return w.start(1).host, w.hosts[1] }},
				{"peer to process", func(w *sharedWorld) (*host, *host) { return w.hosts[1], w.start(1).host }},
				{"process to process", func(w *sharedWorld) (*host, *host) { return w.start(1).host, w.start(63).host }},
				{"process to owner", func(w *sharedWorld) (*host, *host) { return w.start(2).host, w.hosts[0] }},
				{"owner to process", func(w *sharedWorld) (*host, *host) { return w.hosts[0], w.start(2).host }},
				{"process to itself", func(w *sharedWorld) (*host, *host) {
					p := w.start(3)
					twin := *p.host
					twin.qp = p.newQP()
					return p.host, &twin
				}},
				{"owner to peer", func(w *sharedWorld) (*host, *host) { return w.hosts[0], w.hosts[1] }},
			} {
				t.Run(test.name, func(t *testing.T) {
					w := newSharedWorld(t, provider.DefaultCapabilities(), at)
					client, server := test.ends(w)
					w.join(client, server)
					if client.cq != server.cq {
						w.exchange(client, server)
					}
					a := &async{}
					a.returned = client.conn.Disconnect(a.done, a)
					w.want(w.finish(a), provider.StatusSuccess)
					w.wait("the peer's event", func() bool { return server.disconnected == 1 })
				})
			}
		})
	}
}

// TestForwardingLosesDatagrams: they are repeated.
func TestForwardingLosesDatagrams(t *testing.T) {
	w := newSharedWorld(t, provider.DefaultCapabilities(), addresses)
	p := w.start(1)
	w.lose = func() bool { return w.forwarded%2 == 1 }
	w.join(w.hosts[1], p.host)
	a := &async{}
	a.returned = p.conn.Disconnect(a.done, a)
	w.want(w.finish(a), provider.StatusSuccess)
}

// TestHandedInLate: the end of a connection, which comes by way of the owner, does not overtake the acknowledgement that
// arrived before it and waits for the consumer to poll.
func TestHandedInLate(t *testing.T) {
	w := newSharedWorld(t, provider.DefaultCapabilities(), addresses)
	var at *tray
	w.wrap = func(c provider.Carrier) provider.Carrier {
		at = &tray{Carrier: c, passes: true}
		return at
	}
	p, peer := w.start(1), w.hosts[1]
	w.join(p.host, peer)
	w.settle()
	at.passes = false
	w.want(peer.qp.Receive(nil, nil), provider.StatusSuccess)
	w.want(p.qp.Send(nil, nil, 0), provider.StatusSuccess)
	w.arrive()
	if len(at.packets) != 1 {
		t.Fatalf("%d packets wait, want the acknowledgement", len(at.packets))
	}
	a := &async{}
	a.returned = peer.conn.Disconnect(a.done, a)
	w.wait("the event", func() bool { return p.disconnected == 1 })
	results := make([]provider.ResultEx, 2)
	if n := p.cq.ResultsEx(results); n != 1 || results[0].Status != provider.StatusSuccess {
		t.Errorf("%d results, %+v, want that of the request", n, results[:n])
	}
	peer.result(provider.StatusSuccess)
	at.passes = true
	w.want(w.finish(a), provider.StatusSuccess)
}

// TestProcessDies has a process die at the stages of a connection.
func TestProcessDies(t *testing.T) {
	for _, test := range []struct {
		name string
		// stage brings a connection about, as far as it goes, and returns what
		// tells whether the peer knows of its end.
		stage func(w *sharedWorld, p *process, peer *host) (told func() bool)
	}{
		{"established, active", func(w *sharedWorld, p *process, peer *host) func() bool {
			w.join(p.host, peer)
			return func() bool { return peer.disconnected == 1 }
		}},
		{"established, passive", func(w *sharedWorld, p *process, peer *host) func() bool {
			w.join(peer, p.host)
			return func() bool { return peer.disconnected == 1 }
		}},
		{"connecting", func(w *sharedWorld, p *process, peer *host) func() bool {
			var accepted *async
			peer.listen(func(c *provider.Connector) { accepted = peer.accept(c) })
			p.dial(p.newConnector(), peer)
			w.wait("the peer's acceptance", func() bool { return accepted != nil })
			return func() bool { return accepted.over() && accepted.status == provider.StatusConnectionAborted }
		}},
		{"completing", func(w *sharedWorld, p *process, peer *host) func() bool {
			var accepted *async
			peer.listen(func(c *provider.Connector) { accepted = peer.accept(c) })
			w.want(w.finish(p.dial(p.newConnector(), peer)), provider.StatusSuccess)
			return func() bool { return accepted.over() && accepted.status == provider.StatusConnectionAborted }
		}},
		{"deciding", func(w *sharedWorld, p *process, peer *host) func() bool {
			asked := false
			p.listen(func(*provider.Connector) { asked = true })
			dialled := peer.dial(peer.newConnector(), p.host)
			w.wait("the request", func() bool { return asked })
			return func() bool { return dialled.over() && dialled.status == provider.StatusConnectionRefused }
		}},
		{"accepting", func(w *sharedWorld, p *process, peer *host) func() bool {
			p.listen(func(c *provider.Connector) { p.accept(c) })
			peer.conn = peer.newConnector()
			w.want(w.finish(peer.dial(peer.conn, p.host)), provider.StatusSuccess)
			return func() bool { w.settle(); return peer.complete() == provider.StatusConnectionAborted }
		}},
		{"listening", func(w *sharedWorld, p *process, peer *host) func() bool {
			p.listen(nil)
			return func() bool { return true }
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newSharedWorld(t, provider.DefaultCapabilities(), addresses)
			peer := w.hosts[1]
			p := w.start(1)
			told := test.stage(w, p, peer)
			free := false
			w.kill(p, func() { free = true })
			if !w.clock.RunUntil(told, time.Second) {
				t.Fatal("the peer does not know")
			}
			w.wait("the share", func() bool { return free })

			// Nothing is left of it, and the next process has all it had.
			ledger, err := sharing.New(w.memory, []netip.Addr{peer.address}, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, held := range ledger.Ports() {
				if held.Share == p.share {
					t.Errorf("port in use: %v", held)
				}
			}
			next := w.start(1)
			next.listen(nil)
		})
	}
}

// TestProcessDiesUnheard: the share is not free while peers may answer.
func TestProcessDiesUnheard(t *testing.T) {
	w := newSharedWorld(t, provider.DefaultCapabilities(), addresses)
	p := w.start(1)
	w.join(p.host, w.hosts[1])
	w.path.Down = true
	free := false
	died := w.clock.Now()
	w.kill(p, func() { free = true })
	w.clock.Run(10 * time.Second)
	if free {
		t.Fatal("the share is free although the peer has not answered")
	}
	w.wait("the share", func() bool { return free })
	if d := w.clock.Now() - died; d > time.Minute {
		t.Errorf("the share is free after %v", d)
	}
	w.path.Down = false
	w.clock.Run(time.Minute)
}

// TestRequestOfDeadProcess: a peer's request to a process that has died is another
// one's that listens in its place.
func TestRequestOfDeadProcess(t *testing.T) {
	w := newSharedWorld(t, provider.DefaultCapabilities(), addresses)
	one, peer := w.start(1), w.hosts[1]
	asked := false
	one.listen(func(*provider.Connector) { asked = true })
	peer.conn = peer.newConnector()
	dialled := peer.dial(peer.conn, one.host)
	w.wait("the request", func() bool { return asked })
	w.path.Down = true // the refusal in its name is lost
	w.kill(one, func() {})
	two := w.start(2)
	two.port = one.port
	two.listen(func(c *provider.Connector) { two.accept(c) })
	w.path.Down = false
	w.want(w.finish(dialled), provider.StatusSuccess)
}

// TestSharedPorts: a port is one process's, of those that share a device.
func TestSharedPorts(t *testing.T) {
	w := newSharedWorld(t, provider.DefaultCapabilities(), addresses)
	one, two := w.start(1), w.start(2)
	two.port = one.port
	w.join(w.hosts[1], one.host)
	other := track(two.host, must(two.CreateListener(func(any, *provider.Connector) {}, nil, nil, nil)))
	w.want(other.Listen(two.service(), nil, nil), provider.StatusSharingViolation)

	ledger, err := sharing.New(w.memory, []netip.Addr{one.address}, 0)
	if err != nil {
		t.Fatal(err)
	}
	check := func(want ...sharing.HeldPort) {
		t.Helper()
		if d := cmp.Diff(want, ledger.Ports(), cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); d != "" {
			t.Error(d)
		}
	}
	check(sharing.HeldPort{Address: one.service(), Share: 1, Use: sharing.PortOfListener})
	closed := one.close(one.listener)
	check(sharing.HeldPort{Address: one.service(), Share: 1, Use: sharing.PortOfConnection})
	w.finish(one.close(one.conn))
	w.finish(closed)
	check()
	w.want(other.Listen(two.service(), nil, nil), provider.StatusSuccess)
	shared := netip.AddrPortFrom(one.address, 6000)
	track(one.host, must(one.CreateSharedEndpoint(shared, nil, nil)))
	check(
		sharing.HeldPort{Address: shared, Share: 1, Use: sharing.PortOfSharedEndpoint},
		sharing.HeldPort{Address: one.service(), Share: 2, Use: sharing.PortOfListener},
	)
}

// TestSharedLimits: NDK-CAP-03 across processes. Others can have what a dead one
// had.
func TestSharedLimits(t *testing.T) {
	capabilities := provider.DefaultCapabilities()
	capabilities.MaxPdCount = 4 // of which the hosts have 3 between them
	w := newSharedWorld(t, capabilities, addresses)
	one, two := w.start(1), w.start(2)
	track(one.host, must(one.CreatePD(nil, nil)))
	for _, h := range []*host{w.hosts[0], one.host, two.host} {
		if _, status := h.CreatePD(nil, nil); status != provider.StatusInsufficientResources {
			t.Errorf("one too many: %v", status)
		}
	}
	w.kill(one, func() {})
	w.settle()
	for range 2 {
		track(two.host, must(two.CreatePD(nil, nil)))
	}
	if _, status := w.hosts[0].CreatePD(nil, nil); status != provider.StatusInsufficientResources {
		t.Errorf("one too many after a death: %v", status)
	}
}

// TestSharedCounters: NDK-CNT-13 over the death of a process, and what is active
// is so no more.
func TestSharedCounters(t *testing.T) {
	w := newSharedWorld(t, provider.DefaultCapabilities(), addresses)
	p := w.start(1)
	w.join(p.host, w.hosts[1])
	w.exchange(p.host, w.hosts[1])
	before := w.hosts[0].device.Counters()
	if before.Connect != 1 || before.ActiveConnection != 1 || before.RDMAOutOctets == 0 || before != p.device.Counters() {
		t.Errorf("counters %+v, in the process %+v", before, p.device.Counters())
	}
	w.kill(p, func() {})
	w.settle()
	want := before
	want.ActiveConnection = 0
	if d := cmp.Diff(want, w.hosts[0].device.Counters()); d != "" {
		t.Errorf("after the death: %s", d)
	}
	w.join(w.start(1).host, &host{
		Adapter: w.hosts[1].Adapter, device: w.hosts[1].device, world: w.world, address: w.hosts[1].address, port: 7001,
		qp: w.hosts[1].newQP(), open: w.hosts[1].open,
	})
	want.Connect, want.ActiveConnection = 2, 1
	if got := w.hosts[0].device.Counters(); got.Connect != 2 || got.ActiveConnection != 1 || got.RDMAOutOctets < want.RDMAOutOctets {
		t.Errorf("of the next process: %+v", got)
	}
}
