package soak

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/ndklab/ndklab/internal/provider/sim/trial"
	"github.com/ndklab/ndklab/provider"
)

// A host has addresses, and one device after the other.
type host struct {
	run       *run
	number    int
	plan      *hostPlan
	addresses []netip.Addr
	instance  *instance // the present one; nil while the host is down
	born      int       // instances so far
	downAt    time.Duration
}

// An instance is a device with its consumer, from the start of a host to its end.
type instance struct {
	run        *run
	host       *host
	number     int
	carrier    *trial.Port
	frames     uint64 // sent for queue pairs
	device     *provider.Miniport
	adapter    *provider.Adapter
	domain     *provider.PD
	memory     *trial.Memory
	grants     []*grant // that are good for something, or were; permanent ones first
	former     []*grant // the latest that are over
	windows    []*window
	lam        provider.LAM
	bindable   *provider.MR // the first region, for windows
	spare      *provider.MR
	strange    uint32                   // a token of another domain
	endpoint   *provider.SharedEndpoint // nil without one
	mappedFrom int                      // where the part of the memory begins that lam maps
	queues     []*queue
	shared     *sharedReceives // nil without an SRQ
	listener   *listener
	ends       []*end // not all closed
	open       []provider.Object
	dead       bool // gone without notice
	closing    bool // being shut down
	over       bool // all is closed

	connects, accepts uint64 // established connections, as the counters should have them
}

// String names the instance.
func (l *instance) String() string { return fmt.Sprintf("host %d/%d", l.host.number, l.number) }

func newHost(r *run, number int) *host {
	h := &host{run: r, number: number, plan: &r.plan.hosts[number]}
	if h.plan.v4 {
		h.addresses = append(h.addresses, netip.AddrFrom4([4]byte{10, 0, 0, byte(number + 1)}))
	}
	if h.plan.v6 {
		h.addresses = append(h.addresses, netip.AddrFrom16([16]byte{0: 0xFD, 15: byte(number + 1)}))
	}
	return h
}

// A source makes a device's random numbers. The first two decide about its ports
// and the numbers of its queue pairs, the next two about its GUID and its
// communication IDs, which must be new ones. Of the others, some are close to the
// wrap, if taken as sequence numbers.
type source struct {
	first, rest rand.PCG
	drawn       int
	choose      *rand.Rand
	nearWrap    float64 // how often
}

// Uint64 implements rand.Source. Uint32 of a Rand is the upper half of it.
func (s *source) Uint64() uint64 {
	if s.drawn++; s.drawn <= 2 {
		return s.first.Uint64()
	}
	v := s.rest.Uint64()
	if s.drawn > 4 && s.choose.Float64() < s.nearWrap {
		v = v&^(0xFFFFFF<<32) | (0xFFFFFF-v&31)<<32
	}
	return v
}

// source returns the source of randomness of an instance's device.
func (h *host) source() rand.Source {
	born := uint64(h.born)
	s := &source{
		rest:   *rand.NewPCG(h.run.Seed<<8|uint64(h.number), born),
		choose: rand.New(rand.NewPCG(h.run.Seed, born)), nearWrap: h.plan.nearWrap,
	}
	if h.plan.forgetful {
		born = 0
	}
	s.first = *rand.NewPCG(h.run.Seed<<8|uint64(h.number), ^born)
	return s
}

// boot starts a device with a fresh state.
func (h *host) boot() {
	r := h.run
	h.born++
	l := &instance{run: r, host: h, number: h.born}
	h.instance = l
	r.instances = append(r.instances, l)
	r.Coverage.Count("host booted")
	l.carrier = r.Wrap(r.Network.Attach(h.plan.mtu, h.addresses...), l)
	configuration := provider.DefaultConfiguration()
	configuration.NetworkDirectRoCEFrameSize = h.plan.frameSize
	device, err := provider.NewMiniport(provider.Config{
		Carrier: l.carrier, Clock: r.Clock, Info: h.plan.info, GUID: h.plan.guid, Pend: h.plan.pend, GoBackN: h.plan.goBackN,
		Rand:          rand.New(h.source()),
		Capabilities:  provider.DefaultCapabilities(),
		Configuration: &configuration,
	})
	if err != nil {
		panic(err)
	}
	l.device = device
	l.adapter = must(device.OpenAdapter(provider.OpenParameters{Version: provider.Version{Major: 2}}))
	l.domain = keep(l, must(l.adapter.CreatePD(nil, nil)))
	l.createObjects()
	r.Logf("%v boots", l)
	if h.born > 1 {
		for range r.Rand.IntN(3) {
			r.Later(5*time.Millisecond, func() {
				if h.instance == l && !r.Ending {
					l.dial()
				}
			})
		}
	}
}

// must returns an object whose making cannot fail.
func must[T any](object T, status provider.Status) T {
	if status != provider.StatusSuccess {
		panic(status)
	}
	return object
}

// keep notes an object that is to be closed when the instance ends.
func keep[T provider.Object](l *instance, object T) T {
	l.open = append(l.open, object)
	return object
}

// close closes an object, and calls then, unless it is nil, when that has
// completed.
func (l *instance) close(o provider.Object, then func()) {
	for i, kept := range l.open {
		if kept == o {
			l.open = append(l.open[:i], l.open[i+1:]...)
			break
		}
	}
	r := l.run
	calls := 0
	r.closing++
	done := func() {
		if calls++; calls > 1 {
			r.Fail("a close completes once", "%v: %T", l, o)
		}
		r.closing--
		if then != nil {
			then()
		}
	}
	switch status := o.Close(func(any) { done() }, nil); status {
	case provider.StatusSuccess:
		done()
	case provider.StatusPending:
	default:
		r.Fail("a close does not fail", "%v: %T: %v", l, o, status)
	}
}

// crash ends the device without notice: no packet leaves or comes any more. Its
// objects are closed, as an operating system would close them.
func (h *host) crash() {
	l := h.instance
	if l == nil {
		return
	}
	h.run.Logf("%v crashes", l)
	h.run.Coverage.Count("host crashed")
	h.instance, h.downAt = nil, h.run.Clock.Now()
	l.memory.Check()
	l.dead, l.memory.Frozen = true, true
	if err := l.carrier.Close(); err != nil {
		panic(err)
	}
	l.shutDown()
}

// leave ends the device in an orderly way.
func (h *host) leave() {
	l := h.instance
	if l == nil {
		return
	}
	h.run.Logf("%v shuts down", l)
	h.run.Coverage.Count("host shut down")
	h.instance, h.downAt = nil, h.run.Clock.Now()
	l.shutDown()
}

// shutDown closes everything, in a random order, and then the device.
func (l *instance) shutDown() {
	l.closing = true
	for _, e := range slices.Clone(l.ends) {
		e.closeAtOnce()
	}
	open := slices.Clone(l.open)
	l.run.Rand.Shuffle(len(open), func(i, j int) { open[i], open[j] = open[j], open[i] })
	for _, o := range open {
		l.close(o, nil)
	}
	l.adapter.ReleaseLAM(&l.lam)
	l.run.closing++
	l.adapter.BeginClose(func() {
		l.run.closing--
		l.checkCounters()
		l.run.closing++
		l.device.BeginClose(func() {
			l.run.closing--
			l.checkNothingLeft()
			l.over = true
			l.memory.DropClaims()
		})
	})
}
