package verbsoak

import (
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/sim/trial"
	"github.com/ndklab/ndklab/internal/provider/verbs"
	"github.com/ndklab/ndklab/provider"
)

// A host has a device and a program that uses it.
type host struct {
	run      *run
	number   int
	plan     *hostPlan
	address  netip.Addr
	device   *provider.Miniport
	context  *verbs.Context
	pd       *verbs.PD
	stranger *verbs.PD // another domain
	memory   *memory
	mr       *verbs.MR // all of memory, with every right
	foreign  *verbs.MR // likewise, of the other domain
	fleeting *changingRegion
	queues   []*queue
	srqs     map[verbs.QPType]*receives // one for RC and one for the other kinds, or none
	ends     []*end
	windows  []*window
	dead     []uint32 // tokens that grant nothing any more
}

// String names the host.
func (h *host) String() string { return fmt.Sprint("host ", h.number) }

// few are the limits of a context: so few that what is left is noticed at the end.
var few = verbs.Limits{QPs: 60, CQs: 12, MRs: 8, MWs: 8, PDs: 3, SRQs: 3, AHs: 8, WorkRequests: 64, SGEs: 4, Inline: 128, CQEs: 4096, Reads: 16}

const everything = verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic | verbs.AccessBindWindow

func newHost(r *run, number int) *host {
	h := &host{run: r, number: number, plan: &r.plan.hosts[number], srqs: map[verbs.QPType]*receives{}}
	h.address = netip.AddrFrom4([4]byte{10, 0, 0, byte(number + 1)})
	if r.plan.hosts[0].buffer < 64<<10 { // as good a coin as any, and the same for all
		h.address = netip.AddrFrom16([16]byte{0: 0xFD, 15: byte(number + 1)})
	}
	r.Fabric.Attach(number, h.address)
	return h
}

// start opens the device.
func (h *host) start() {
	r := h.run
	configuration := provider.DefaultConfiguration()
	configuration.NetworkDirectRoCEFrameSize = 0
	device, err := provider.NewMiniport(provider.Config{
		Carrier: carrier{r.Wrap(r.Network.Attach(h.plan.mtu, h.address), h), h.plan.buffer}, Clock: r.Clock, Rand: rand.New(rand.NewPCG(r.Seed, uint64(h.number)+10)),
		Info: provider.DefaultAdapterInfo(), Capabilities: provider.DefaultCapabilities(), Configuration: &configuration,
	})
	h.device = made(device, err)
	h.context = made(verbs.Open(device, few, h.event))
	h.pd = made(h.context.AllocPD())
	h.stranger = made(h.context.AllocPD())
	mtu := h.context.GIDs()[0].MTU
	h.memory = newMemory(h, (max(r.plan.Largest, mtu)+roce.GRHLen+64)&^7)
	n := uint64(len(h.memory.Bytes))
	h.mr = made(h.pd.RegisterMR(verbs.Bytes(h.memory.Bytes), n, h.base(), everything))
	h.foreign = made(h.stranger.RegisterMR(verbs.Bytes(h.memory.Bytes), n, h.base(), everything))
	h.fleeting = newChangingRegion(h)
	for i := range 3 {
		h.queues = append(h.queues, newQueue(h, r.plan.scarce && i == 0))
	}
	if h.plan.srq {
		for _, kind := range []verbs.QPType{verbs.RC, verbs.UD} {
			h.srqs[kind] = newSharedReceives(h)
		}
	}
	for i := range 3 {
		h.windows = append(h.windows, newWindow(h, verbs.WindowType(1+i%2)))
	}
}

// made returns an object whose creation cannot fail.
func made[T any](v T, err error) T {
	must(err)
	return v
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// base returns the address of the first byte of the host's memory.
func (h *host) base() uint64 { return uint64(h.number+1) << 28 }

// piece returns n bytes of the host's memory.
func (h *host) piece(at, n int) rc.SGE {
	return rc.SGE{Address: h.base() + uint64(at), Length: uint32(n), Token: h.mr.Key()}
}

// numbered returns the host's latest queue pair with a number; nil if there is none.
func (h *host) numbered(qpn uint32) *end {
	for i := len(h.ends) - 1; i >= 0; i-- {
		if h.ends[i].qpn == qpn {
			return h.ends[i]
		}
	}
	return nil
}

// event follows an asynchronous event. The provider holds locks, so that what follows from it is done later.
func (h *host) event(e verbs.Event) {
	r := h.run
	r.Coverage.Count(fmt.Sprint("event ", e.Type))
	r.Logf("%v: event %d", h, e.Type)
	switch e.Type {
	case verbs.EventCQError:
		h.queueOf(e.CQ).overran()
	case verbs.EventSRQLimitReached:
		for _, s := range h.srqs {
			if s.srq == e.SRQ {
				s.limitReached()
			}
		}
	default:
		if e.QP == nil {
			r.Fail("events happen for a reason", "%v: event %d", h, e.Type)
		}
		h.numbered(e.QP.Number()).event(e.Type)
	}
}

func (h *host) queueOf(cq *verbs.CQ) *queue {
	for _, q := range h.queues {
		if q.cq == cq {
			return q
		}
	}
	panic("a CQ of nobody")
}

// A carrier is a host's place on the network. It implements provider.Poller, so that the device puts off what it may.
type carrier struct {
	*trial.Port
	buffer int // bytes of the receive buffer
}

// Listen implements provider.Carrier.
func (c carrier) Listen(r provider.Receiver) { c.Port.Listen(prompt{r.(provider.Deferrer)}) }

// ReceiveBuffer implements provider.Carrier.
func (c carrier) ReceiveBuffer() int { return c.buffer }

// Poll implements provider.Poller: nothing waits for who polls.
func (c carrier) Poll(provider.Receiver) bool { return false }

// PollBeside implements provider.Poller.
func (c carrier) PollBeside(provider.Receiver) (arrived, alone bool) { return false, false }

// CatchUp implements provider.Poller.
func (c carrier) CatchUp(provider.Receiver) {}

// Resume implements provider.Poller.
func (c carrier) Resume() {}

// A prompt receiver does at once what it puts off.
type prompt struct{ provider.Deferrer }

// Receive implements provider.Receiver.
func (p prompt) Receive(packets []roce.Received) {
	p.Deferrer.Receive(packets)
	for p.Delivered() {
	}
}

// other returns a random host, not often h itself.
func (h *host) other() *host {
	for range 8 {
		if o := trial.Pick(h.run.Rand, h.run.hosts); o != h {
			return o
		}
	}
	return h
}
