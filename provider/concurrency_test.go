package provider_test

import (
	"math/rand/v2"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ndklab/ndklab/internal/leak"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
)

// await makes a call that may pend and waits for its end.
func await(call func(provider.RequestCompletion) provider.Status) provider.Status {
	ended := make(chan provider.Status, 1)
	status := call(func(_ any, s provider.Status) { ended <- s })
	if status != provider.StatusPending {
		return status
	}
	return <-ended
}

// awaitClose closes an object and waits until it is closed.
func awaitClose(o closer) {
	await(func(done provider.RequestCompletion) provider.Status {
		return o.Close(func(context any) { done(context, success) }, nil)
	})
}

// A ticket is a posted request. It is the request's context.
type ticket struct {
	slots     chan struct{}   // of its queue: as many as may be outstanding
	open      *sync.WaitGroup // of all that its connection's two ends have posted
	completed atomic.Int32
}

// A crowd is an adapter in real time whose only CQ serves many QPs.
type crowd struct {
	*provider.Adapter
	device *provider.Miniport
	t      *testing.T
	pd     *provider.PD
	cq     *provider.CQ
	mr     *provider.MR
	inside atomic.Int32 // callbacks of cq
	total  atomic.Int64 // completions
}

func newCrowd(t *testing.T, w *wire, address netip.Addr, seed uint64, cqDepth uint32) *crowd {
	t.Helper()
	return newCrowdWith(t, w, address, seed, cqDepth, clock.Real(), false)
}

func newCrowdWith(t *testing.T, w *wire, address netip.Addr, seed uint64, cqDepth uint32, c clock.Clock, pend bool) *crowd {
	t.Helper()
	cfg := provider.Config{Carrier: w.attach(address), Clock: c,
		Rand: rand.New(rand.NewPCG(seed, 1)), Info: provider.DefaultAdapterInfo(),
		Capabilities: provider.DefaultCapabilities(), Pend: pend}
	m, err := provider.NewMiniport(cfg)
	if err != nil {
		t.Fatal(err)
	}
	a := must(m.OpenAdapter(anyVersion))
	made := &crowd{Adapter: a, device: m, t: t, pd: must(a.CreatePD(nil, nil))}
	made.cq = must(a.CreateCQ(cqDepth, made.notified, nil, nil, nil, nil))
	made.mr = must(made.pd.CreateMR(false, nil, nil))
	if s := made.mr.Register(&provider.MDL{VirtualAddress: base, Bytes: make([]byte, 1<<20)}, 1<<20, 0xF, nil, nil); s != success {
		t.Fatal(s)
	}
	made.cq.Arm(provider.NotifyAny)
	return made
}

// end closes what newCrowd made and blocks until everything is.
func (c *crowd) end() {
	for _, o := range []closer{c.cq, c.mr, c.pd} {
		awaitClose(o)
	}
	c.Close()
	c.device.Close()
}

func (c *crowd) notified(_ any, status provider.Status) {
	if c.inside.Add(1) > 1 {
		c.t.Error("two callbacks of one CQ at once (NDK-CQ-09)")
	}
	if status != success {
		c.t.Errorf("notified with %v", status)
	}
	runtime.Gosched() // gives another callback the occasion
	c.drain()
	c.cq.Arm(provider.NotifyAny)
	c.inside.Add(-1)
}

func (c *crowd) drain() {
	results := make([]provider.Result, 32)
	for {
		n := c.cq.Results(results)
		for _, r := range results[:n] {
			ticket := r.RequestContext.(*ticket)
			if ticket.completed.Add(1) > 1 {
				c.t.Error("a request completed twice")
			}
			c.total.Add(1)
			<-ticket.slots
			ticket.open.Done()
		}
		if n == 0 {
			return
		}
	}
}

func (c *crowd) newQP() *provider.QP {
	return must(c.pd.CreateQP(c.cq, c.cq, nil, qpDepth, qpDepth, 1, 1, 0, nil, nil))
}

// posts posts by f until that fails or has been called n times, and returns how
// often it was accepted, and the last status.
func posts(n int, open *sync.WaitGroup, f func(i int, context any) provider.Status) (int, provider.Status) {
	slots := make(chan struct{}, qpDepth)
	for i := range n {
		slots <- struct{}{}
		open.Add(1)
		if status := f(i, &ticket{slots: slots, open: open}); status != success {
			open.Done()
			return i, status
		}
	}
	return n, success
}

// firstPort is that of the first pair that meets; the others follow.
const firstPort = 7000

// An encounter is one end of a connection.
type encounter struct {
	*crowd
	qp    *provider.QP
	place uint64 // in the region, where the connection writes; it reads at 0
	conn  *provider.Connector
	close func()       // closes conn, the first time it is called
	lost  atomic.Int32 // disconnect events
}

// disconnected is the end's disconnect event.
func (e *encounter) disconnected(any) {
	if e.lost.Add(1) > 1 {
		e.t.Error("two disconnect events of one connection")
	}
	e.qp.Flush()
}

// use posts to both queues at once and returns how much was accepted. begun is
// called once some of it is posted.
func (e *encounter) use(peer *encounter, open *sync.WaitGroup, first int, begun func()) int {
	const requests = 2 * qpDepth
	source := []provider.SGE{{VirtualAddress: base, Length: 5000, MemoryRegionToken: e.mr.LocalToken()}}
	sink := []provider.SGE{{VirtualAddress: base + e.place, Length: 5000, MemoryRegionToken: e.mr.LocalToken()}}
	remote := peer.mr.RemoteToken()
	received := make(chan int)
	go func() {
		n, status := posts(requests, open, func(_ int, context any) provider.Status { return e.qp.Receive(context, sink) })
		if status != success {
			e.t.Errorf("a receive was refused with %v", status)
		}
		received <- n
	}()
	initiated, status := posts(requests, open, func(i int, context any) provider.Status {
		if i == first {
			begun()
		}
		switch i % 4 {
		case 0:
			return e.qp.Write(context, source, base+peer.place, remote, provider.OpDefer)
		case 1:
			return e.qp.Read(context, sink, base, remote, provider.OpReadFence)
		default:
			return e.qp.Send(context, source, provider.OpSendAndSolicitEvent)
		}
	})
	begun() // should fewer have been accepted
	if status != success && status != provider.StatusConnectionInvalid {
		e.t.Errorf("a request was refused with %v", status)
	}
	return initiated + <-received
}

// join connects two ends over a listener at port, which it returns.
func join(ends [2]*encounter, port uint16) *provider.Listener {
	t := ends[0].t
	delivered := make(chan *provider.Connector, 1)
	l := must(ends[1].CreateListener(func(_ any, conn *provider.Connector) { delivered <- conn }, nil, nil, nil))
	to := netip.AddrPortFrom(addresses[1], port)
	if s := l.Listen(to, nil, nil); s != success {
		t.Error("listen:", s)
	}
	ends[0].conn = must(ends[0].CreateConnector(nil, nil))
	accepted := make(chan provider.Status, 1)
	go func() {
		e := ends[1]
		e.conn = <-delivered
		accepted <- await(func(done provider.RequestCompletion) provider.Status {
			return e.conn.Accept(e.qp, 4, 4, nil, e.disconnected, nil, done, nil)
		})
	}()
	if s := await(func(done provider.RequestCompletion) provider.Status {
		return ends[0].conn.Connect(ends[0].qp, netip.AddrPortFrom(addresses[0], 0), to, 4, 4, nil, done, nil)
	}); s != success {
		t.Error("connect:", s)
	}
	if s := ends[0].conn.CompleteConnect(ends[0].disconnected, nil, nil, nil); s != success {
		t.Error("complete connect:", s)
	}
	if s := <-accepted; s != success {
		t.Error("accept:", s)
	}
	return l
}

// meet connects two new QPs, has both ends use the connection while one of them
// ends it, and closes everything. It returns how many requests were accepted.
func (c *crowd) meet(server *crowd, port uint16, r *rand.Rand) int {
	place := uint64(port-firstPort+1) * 8192
	ends := [2]*encounter{{crowd: c, qp: c.newQP(), place: place}, {crowd: server, qp: server.newQP(), place: place}}
	l := join(ends, port)
	for _, e := range ends {
		e.close = sync.OnceFunc(func() { awaitClose(e.conn) })
	}

	var open, using sync.WaitGroup
	var total atomic.Int64
	some := make(chan struct{})
	first := r.IntN(2 * qpDepth)
	begun := sync.OnceFunc(func() { close(some) })
	for i, e := range ends {
		using.Go(func() {
			total.Add(int64(e.use(ends[1-i], &open, first, begun)))
		})
	}
	<-some
	one, way := ends[r.IntN(2)], r.IntN(3)
	switch way {
	case 0:
		one.qp.Flush()
		one.close()
	case 1:
		one.close()
	default:
		for _, e := range ends {
			using.Go(func() {
				await(func(done provider.RequestCompletion) provider.Status { return e.conn.Disconnect(done, nil) })
			})
		}
	}
	using.Wait()
	if status := one.qp.Send(nil, nil, 0); status != provider.StatusConnectionInvalid {
		c.t.Errorf("a post after the end of the connection: %v", status)
	}
	for _, o := range []func(){ends[0].close, ends[1].close, func() { awaitClose(ends[0].qp) }, func() { awaitClose(ends[1].qp) }, func() { awaitClose(l) }} {
		using.Go(o) // NDK-LIFE-33
	}
	using.Wait()
	open.Wait()
	return int(total.Load())
}

// TestConcurrency has many connections made, used and ended at once by all ways
// there are, in real time and on a wire that loses packets. Each accepted request
// completes exactly once (NDK-POST-01, NDK-FLUSH-02). Most of what it is for only
// the race detector sees.
func TestConcurrency(t *testing.T) {
	t.Run("NDK-POST-10 NDK-POST-11 NDK-CQ-09 NDK-LIFE-21 NDK-LIFE-22 NDK-LIFE-33 NDK-CB-05", testConcurrency)
}

func testConcurrency(t *testing.T) {
	defer leak.Check(t)()
	const pairs, rounds = 6, 8
	w := newWire(61)
	client := newCrowd(t, w, addresses[0], 1, 8*pairs*qpDepth)
	server := newCrowd(t, w, addresses[1], 2, 8*pairs*qpDepth)

	var accepted atomic.Int64
	var meeting, watching sync.WaitGroup
	for i := range pairs {
		meeting.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 3))
			for range rounds {
				accepted.Add(int64(client.meet(server, uint16(firstPort+i), r)))
			}
		})
	}
	over := make(chan struct{})
	watching.Go(func() { // what anybody may do meanwhile
		for {
			select {
			case <-over:
				return
			default:
				server.device.Counters()
				client.device.TransportCounters()
				mr := must(server.pd.CreateMR(false, nil, nil))
				mr.Register(&provider.MDL{Bytes: make([]byte, 10)}, 10, 0xF, nil, nil)
				awaitClose(mr)
			}
		}
	})
	meeting.Wait()
	close(over)
	watching.Wait()

	var closing sync.WaitGroup
	for _, c := range []*crowd{client, server} {
		closing.Go(func() { // blocks until the last object is closed
			c.Close()
			c.device.Close()
		})
		for _, o := range []closer{c.pd, c.cq, c.mr} {
			closing.Go(func() { awaitClose(o) })
		}
	}
	closing.Wait()
	if got, want := client.total.Load()+server.total.Load(), accepted.Load(); got != want || want == 0 {
		t.Errorf("%d completions of %d requests", got, want)
	}
}

// TestDeregisterInUse: Deregister does not complete while a packet's bytes are
// with the carrier.
func TestDeregisterInUse(t *testing.T) {
	defer leak.Check(t)()
	w := newWire(0)
	var mr *provider.MR
	var deregistered atomic.Bool
	ended := make(chan struct{})
	var once sync.Once
	w.sending = func(packets []roce.Packet) {
		if packets[0].Header.Opcode != roce.WriteOnly { // there is one, when mr is registered
			return
		}
		once.Do(func() {
			go mr.Deregister(func(any, provider.Status) { deregistered.Store(true); close(ended) }, nil)
			for mr.LocalToken() != 0 {
				runtime.Gosched()
			}
			for range 10000 { // the occasion to complete
				runtime.Gosched()
			}
			if deregistered.Load() {
				t.Error("deregistered while its bytes are being sent")
			}
		})
	}
	client, server := newCrowd(t, w, addresses[0], 1, 8), newCrowd(t, w, addresses[1], 2, 8)
	ends := [2]*encounter{{crowd: client, qp: client.newQP()}, {crowd: server, qp: server.newQP()}}
	l := join(ends, firstPort)
	mr = must(client.pd.CreateMR(false, nil, nil))
	if s := mr.Register(&provider.MDL{VirtualAddress: 1, Bytes: make([]byte, 8)}, 8, 0, nil, nil); s != success {
		t.Fatal(s)
	}
	var open sync.WaitGroup
	posts(1, &open, func(_ int, context any) provider.Status {
		return ends[0].qp.Write(context, []provider.SGE{{VirtualAddress: 1, Length: 8, MemoryRegionToken: mr.LocalToken()}}, base, server.mr.RemoteToken(), 0)
	})
	<-ended
	open.Wait()
	for _, o := range []closer{mr, ends[0].conn, ends[1].conn, ends[0].qp, ends[1].qp, l} {
		awaitClose(o)
	}
	client.end()
	server.end()
}
