package provider_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/sim"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
)

// A world is two adapters on a simulated network in virtual time. Its end is a
// test of its own: whatever is still open is closed, antecedents first, and
// both adapters must come to their end.
//
// Virtual time can be moved on from within a callback, too: that is what other
// goroutines would do while the callback is in progress.
type world struct {
	t       testing.TB
	clock   *clock.Virtual
	path    *sim.Impaired
	network *sim.Network
	hosts   [2]*host
	others  []*host // further instances on the hosts' devices
	opened  uint64  // devices
}

// A host is an adapter with what nearly every test needs on it.
type host struct {
	*provider.Adapter
	device   *provider.Miniport
	world    *world
	address  netip.Addr
	port     uint16 // where it listens
	pd       *provider.PD
	cq       *provider.CQ
	notes    *notes // of cq
	qp       *provider.QP
	memory   []byte // registered with every right, at address base
	mr       *provider.MR
	conn     *provider.Connector
	listener *provider.Listener // the latest
	open     *[]closer          // in the order they were made; shared by copies of the host

	disconnected int // times that conn's event was raised
}

// A closer is an object.
type closer interface {
	Close(provider.CloseCompletion, any) provider.Status
	Type() provider.ObjectType
}

// base is the address at which the hosts' memory begins. Nobody could dereference
// it, which must not matter (NDK-MR-04).
const base = 0x10_0000_0000

const (
	mtu      = 4200
	cqDepth  = 256
	qpDepth  = 64
	qpPieces = 4
	inline   = 256
)

var (
	addresses  = [2]netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}
	addresses6 = [2]netip.Addr{netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")}
)

// nowhere is an address that no packet comes back from.
var nowhere = netip.MustParseAddrPort("10.0.0.9:7000")

func newWorld(t testing.TB) *world {
	t.Helper()
	return newWorldOf(t, addresses, provider.DefaultAdapterInfo())
}

func newWorldOf(t testing.TB, addresses [2]netip.Addr, info provider.AdapterInfo) *world {
	t.Helper()
	return newWorldWith(t, addresses, func(c *provider.Config) { c.Info = info })
}

// newWorldWith makes a world of devices with a change to their configuration.
func newWorldWith(t testing.TB, addresses [2]netip.Addr, change func(*provider.Config)) *world {
	t.Helper()
	w := newEmptyWorld(t)
	for i, address := range addresses {
		cfg := w.config(w.network.Attach(mtu, address))
		change(&cfg)
		w.hosts[i] = w.equip(w.start(cfg), address)
		w.hosts[i].fill(i)
	}
	return w
}

// newEmptyWorld makes a world that is to be given its two hosts.
func newEmptyWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, clock: clock.NewVirtual()}
	w.path = &sim.Impaired{Rand: rand.New(rand.NewPCG(1, 2)), Delay: 10 * time.Microsecond, Rate: 10e9}
	w.network = sim.NewNetwork(w.clock, w.path)
	t.Cleanup(w.end)
	return w
}

// openAt starts a device.
func (w *world) openAt(address netip.Addr, info provider.AdapterInfo) *provider.Miniport {
	w.t.Helper()
	return w.openOn(w.network.Attach(mtu, address), info)
}

func (w *world) openOn(carrier provider.Carrier, info provider.AdapterInfo) *provider.Miniport {
	w.t.Helper()
	cfg := w.config(carrier)
	cfg.Info = info
	return w.start(cfg)
}

// config is that of a device with all defaults, except that its path MTU is as
// large as the carrier allows.
func (w *world) config(carrier provider.Carrier) provider.Config {
	w.opened++
	configuration := provider.DefaultConfiguration()
	configuration.NetworkDirectRoCEFrameSize = 0
	return provider.Config{
		Carrier: carrier, Clock: w.clock,
		Rand: rand.New(rand.NewPCG(w.opened, 7)), Info: provider.DefaultAdapterInfo(),
		Capabilities: provider.DefaultCapabilities(), Configuration: &configuration,
	}
}

func (w *world) start(cfg provider.Config) *provider.Miniport {
	w.t.Helper()
	if cfg.Info.MaxSrqDepth == 0 {
		cfg.Capabilities.MaxSrqCount = 0 // NDK-CAP-04
	}
	m, err := provider.NewMiniport(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

// anyVersion asks for whatever the adapter has.
var anyVersion = provider.OpenParameters{Version: provider.Version{Major: 2}}

// reopen gives a host another device in place of one that has ended.
func (w *world) reopen(h *host) {
	h.device = w.openAt(h.address, provider.DefaultAdapterInfo())
	h.Adapter = must(h.device.OpenAdapter(anyVersion))
}

// another opens one more instance on a host's device.
func (w *world) another(h *host) *host {
	o := w.equip(h.device, h.address)
	w.others = append(w.others, o)
	return o
}

func (w *world) equip(m *provider.Miniport, address netip.Addr) *host {
	return w.equipOn(m, must(m.OpenAdapter(anyVersion)), address)
}

// equipOn makes on an instance what nearly every test needs.
func (w *world) equipOn(m *provider.Miniport, a *provider.Adapter, address netip.Addr) *host {
	h := &host{Adapter: a, device: m, world: w, address: address, port: 7000, memory: make([]byte, 1<<20), open: new([]closer)}
	h.pd = track(h, must(a.CreatePD(nil, nil)))
	h.cq, h.notes = h.newCQ(cqDepth)
	h.qp = h.newQP()
	h.mr = h.register(base, h.memory, provider.MRAllowRemoteRead|provider.MRAllowRemoteWrite)
	return h
}

// reequip has a host use another instance, in place of its present one unless
// that is the same.
func (w *world) reequip(i int, a *provider.Adapter) {
	w.t.Helper()
	old := w.hosts[i]
	for len(*old.open) > 0 {
		old.close((*old.open)[0])
	}
	if a != old.Adapter {
		old.BeginClose(func() {})
	}
	w.settle()
	w.hosts[i] = w.equipOn(old.device, a, old.address)
}

// end closes everything.
func (w *world) end() {
	if w.t.Failed() {
		return
	}
	w.path.Down, w.path.Loss = false, 0
	var closes []*async
	ends := 0
	for _, h := range w.others {
		h.BeginClose(func() {}) // which the device's end waits for
		for len(*h.open) > 0 {
			closes = append(closes, h.close((*h.open)[0]))
		}
	}
	for _, h := range w.hosts {
		h.endAll(func() { ends++ })
		for len(*h.open) > 0 {
			closes = append(closes, h.close((*h.open)[0]))
		}
	}
	w.wait("the end of both adapters", func() bool { return ends == 2 })
	w.clock.Run(time.Millisecond) // packets that were under way
	for _, a := range closes {
		if !a.over() || a.calls > 1 {
			w.t.Fatalf("a close returned %v and called back %d times", a.returned, a.calls)
		}
	}
	for _, h := range w.hosts {
		if n := h.device.InUse() + h.device.HeardBy() + h.Queues(); n != 0 {
			w.t.Fatalf("%d entries are left in the adapter's tables", n)
		}
	}
	if ends != 2 {
		w.t.Fatalf("two adapters came to %d ends", ends)
	}
	if w.clock.Step() {
		w.t.Fatal("something is still scheduled after everything was closed")
	}
}

// endAll ends the adapter and then the device.
func (h *host) endAll(done func()) {
	h.BeginClose(func() { h.device.BeginClose(done) })
}

// track notes an object that end is to close.
func track[T closer](h *host, o T) T {
	*h.open = append(*h.open, o)
	return o
}

// notes record the statuses that a CQ's notification callback was told.
type notes struct {
	statuses []provider.Status
	then     func() // called by the callback, if set
}

func (h *host) newCQ(depth uint32) (*provider.CQ, *notes) {
	n := &notes{}
	return track(h, must(h.CreateCQ(depth, func(context any, s provider.Status) {
		if context != n {
			panic("wrong context")
		}
		n.statuses = append(n.statuses, s)
		if n.then != nil {
			n.then()
		}
	}, n, nil, nil, nil))), n
}

func (h *host) newQP() *provider.QP { return h.newQPOn(h.cq, h.cq, h) }

func (h *host) newQPOn(receives, initiated *provider.CQ, context any) *provider.QP {
	return track(h, must(h.pd.CreateQP(receives, initiated, context, qpDepth, qpDepth, qpPieces, qpPieces, inline, nil, nil)))
}

func (h *host) newConnector() *provider.Connector { return track(h, must(h.CreateConnector(nil, nil))) }

func (h *host) register(at uint64, memory []byte, flags provider.MRFlags) *provider.MR {
	mr := track(h, must(h.pd.CreateMR(false, nil, nil)))
	h.world.want(mr.Register(&provider.MDL{VirtualAddress: at, Bytes: memory}, uint64(len(memory)), flags, nil, nil),
		provider.StatusSuccess)
	return mr
}

// noise is random bytes, made once for all tests.
var noise = sync.OnceValue(func() (noise [4][]byte) {
	for i := range noise {
		noise[i] = make([]byte, 1<<20)
		r := rand.NewPCG(uint64(i), 0)
		for j := 0; j < len(noise[i]); j += 8 {
			binary.NativeEndian.PutUint64(noise[i][j:], r.Uint64())
		}
	}
	return noise
})

// fill makes the host's memory random; there are four seeds.
func (h *host) fill(seed int) { copy(h.memory, noise()[seed]) }

// must panics unless a create succeeded: tests make what they know to work.
func must[T any](object T, status provider.Status) T {
	if status != provider.StatusSuccess {
		panic(status)
	}
	return object
}

// want fails the test unless got is wanted.
func (w *world) want(got, wanted provider.Status) {
	w.t.Helper()
	if got != wanted {
		w.t.Fatalf("got %v, want %v", got, wanted)
	}
}

// wait runs the world until done, for two virtual minutes at most.
func (w *world) wait(what string, done func() bool) {
	w.t.Helper()
	if !w.clock.RunUntil(done, 2*time.Minute) {
		w.t.Fatalf("%s: not within two minutes", what)
	}
}

// settle runs the world for a second, in which everything comes to rest that is
// not waiting for a peer.
func (w *world) settle() { w.clock.Run(time.Second) }

// at is a place in the host's memory.
func (h *host) at(offset, length int) []provider.SGE {
	return []provider.SGE{{
		VirtualAddress: base + uint64(offset), Length: uint32(length), MemoryRegionToken: h.mr.LocalToken(),
	}}
}

// results waits for n completions on the host's CQ.
func (h *host) results(n int) []provider.ResultEx {
	h.world.t.Helper()
	return h.world.results(h.cq, n)
}

// results waits for n completions.
func (w *world) results(cq *provider.CQ, n int) []provider.ResultEx {
	w.t.Helper()
	var got []provider.ResultEx
	w.wait("completions", func() bool {
		buffer := make([]provider.ResultEx, n-len(got))
		got = append(got, buffer[:cq.ResultsEx(buffer)]...)
		return len(got) == n
	})
	return got
}

// result waits for one completion on the host's CQ and checks its status.
func (h *host) result(wanted provider.Status) provider.ResultEx {
	h.world.t.Helper()
	r := h.results(1)[0]
	h.world.want(r.Status, wanted)
	return r
}

// silent fails the test if there is a completion, now or within a second.
func (w *world) silent(cq *provider.CQ) {
	w.t.Helper()
	w.settle()
	if n := cq.Results(make([]provider.Result, 1)); n != 0 {
		w.t.Fatal("a completion that should not be")
	}
}

// statuses are those of results.
func statuses(results []provider.ResultEx) []provider.Status {
	var s []provider.Status
	for _, r := range results {
		s = append(s, r.Status)
	}
	return s
}

// unchanged returns a check that a host's memory is as it is now.
func (h *host) unchanged() func() {
	before := bytes.Clone(h.memory)
	return func() {
		h.world.t.Helper()
		if !bytes.Equal(h.memory, before) {
			h.world.t.Fatal("memory has changed that should not")
		}
	}
}

// An async is a call that may pend: what it returned, and how often and with
// what it called back. It is its own context.
type async struct {
	returned, status provider.Status
	calls            int
	then             func() // called by the callback, if set
}

func (a *async) done(context any, status provider.Status) {
	if context != a {
		panic("wrong context")
	}
	if status == provider.StatusPending {
		panic("a call ended by pending (NDK-LIFE-07)")
	}
	a.status = status
	a.calls++
	if a.then != nil {
		a.then()
	}
}

func (a *async) closed(context any) { a.done(context, provider.StatusSuccess) }

// over reports whether the call has ended.
func (a *async) over() bool { return a.returned != provider.StatusPending || a.calls > 0 }

// finish waits for a call to end and returns its final status.
func (w *world) finish(a *async) provider.Status {
	w.t.Helper()
	w.wait("call", a.over)
	if a.returned != provider.StatusPending {
		return a.returned
	}
	return a.status
}

// close closes an object.
func (h *host) close(o closer) *async {
	*h.open = slices.DeleteFunc(*h.open, func(c closer) bool { return c == o })
	a := &async{}
	a.returned = o.Close(a.closed, a)
	if a.returned != provider.StatusSuccess && a.returned != provider.StatusPending {
		h.world.t.Errorf("a close returned %v (NDK-LIFE-08)", a.returned)
	}
	return a
}

// listen has a host listen and hand its connectors to accept.
func (h *host) listen(accept func(*provider.Connector)) *provider.Listener {
	h.world.t.Helper()
	l := track(h, must(h.CreateListener(func(context any, c *provider.Connector) {
		if context != h {
			panic("wrong context")
		}
		accept(track(h, c))
	}, h, nil, nil)))
	h.world.want(l.Listen(h.service(), nil, nil), provider.StatusSuccess)
	h.listener = l
	return l
}

// service returns the address at which the host listens.
func (h *host) service() netip.AddrPort { return netip.AddrPortFrom(h.address, h.port) }

// ephemeral is an address to connect from.
func (h *host) ephemeral() netip.AddrPort { return netip.AddrPortFrom(h.address, 0) }

// dial starts to connect the host's QP to the other host's service.
func (h *host) dial(c *provider.Connector, to *host) *async {
	a := &async{}
	a.returned = c.Connect(h.qp, h.ephemeral(), to.service(), 16, 16, []byte("hello"), a.done, a)
	return a
}

// accept consents to a connection with the host's QP.
func (h *host) accept(c *provider.Connector) *async {
	h.conn = c
	a := &async{}
	a.returned = c.Accept(h.qp, 16, 16, []byte("welcome"), h.onDisconnect, h, a.done, a)
	return a
}

// complete establishes what the other side has accepted.
func (h *host) complete() provider.Status {
	return h.conn.CompleteConnect(h.onDisconnect, h, nil, nil)
}

func (h *host) onDisconnect(context any) {
	if context != h {
		panic("wrong context")
	}
	h.disconnected++
}

// connect joins the hosts' QPs.
func (w *world) connect() (client, server *host) {
	w.t.Helper()
	client, server = w.hosts[0], w.hosts[1]
	w.join(client, server)
	return client, server
}

// join joins two hosts' QPs, which may be on one adapter.
func (w *world) join(client, server *host) {
	w.t.Helper()
	var accepted *async
	server.listen(func(c *provider.Connector) { accepted = server.accept(c) })
	client.conn = client.newConnector()
	w.want(w.finish(client.dial(client.conn, server)), provider.StatusSuccess)
	w.want(client.complete(), provider.StatusSuccess)
	w.want(w.finish(accepted), provider.StatusSuccess)
}

// rejoin gives the hosts new QPs in place of those whose connection is over, and
// joins them.
func (w *world) rejoin() {
	w.t.Helper()
	for _, h := range w.hosts {
		h.qp, h.disconnected = h.newQP(), 0
		h.port++
	}
	w.join(w.hosts[0], w.hosts[1])
}

// rejoinIn is rejoin with one of the hosts in another protection domain, in
// which its memory is registered anew.
func (w *world) rejoinIn(h *host, pd *provider.PD) {
	w.t.Helper()
	h.pd = pd
	h.mr = h.register(base, h.memory, provider.MRAllowRemoteRead|provider.MRAllowRemoteWrite)
	w.rejoin()
}

// sinks registers the hosts' memory so that it may be the sink of reads, where
// that needs a right.
func (w *world) sinks() {
	w.t.Helper()
	for _, h := range w.hosts {
		h.mr = h.register(base, h.memory, provider.MRAllowRemoteRead|provider.MRAllowRemoteWrite|provider.MRReadSink)
	}
}
