package provider_test

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ndklab/ndklab/internal/provider/sim"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
)

// TestModel has four consumers, two on each of two devices, make calls at random
// and holds the provider against a model of it: the status of each call, what
// completes and how, what is in memory at both ends, which closes pend, how many
// objects there are.
//
// The model knows nothing of packets. It carries a request out when it is posted,
// at once and at both ends; what is in progress at the same time is therefore kept
// from depending on each other (see conflicts), and everything else is called when
// all is at rest (see settle). Where ndkpi.md allows several outcomes the model
// waits to see which it is, and goes on from there.
//
// model_entity_test.go has objects and their ends, model_memory_test.go memory and
// its tokens, model_queue_test.go queues and completions, model_work_test.go the
// requests of queue pairs, model_flight_test.go what may be in progress together,
// and model_connection_test.go connections. The consumers' actions are in
// model_action_test.go, model_create_test.go, model_connect_test.go and
// model_post_test.go.
//
// The default run is the same each time. For more of it, which begins elsewhere
// each time: -run TestModel -rapid.checks=100000.
func TestModel(t *testing.T) {
	checks, seed := flag.Lookup("rapid.checks"), flag.Lookup("rapid.seed")
	if given := seed.Value.String(); given == seed.DefValue && checks.Value.String() == checks.DefValue {
		_ = seed.Value.Set("1") // which is a number
		defer func() { _ = seed.Value.Set(given) }()
	}
	rapid.Check(t, func(rt *rapid.T) {
		m := newModel(t, rt)
		rt.Repeat(map[string]func(*rapid.T){"actions": func(*rapid.T) {
			for range 3 { // the usual number of steps is too small for much to build up
				m.step()
			}
		}})
		m.end()
	})
}

// A model describes two devices and their consumers.
type model struct {
	t         *rapid.T
	w         *world
	lossy     bool // packets are lost, duplicated and reordered
	calm      bool // they are not at the moment
	pend      bool // Config.Pend
	info      provider.AdapterInfo
	devices   [2]*modelDevice
	consumers []*consumer
	entities  []*entity // that are not gone
	calls     []*call   // that have not been checked
	overrun   []*modelCQ
	added     int // entities ever

	// Of what has been posted since all was at rest:
	posted bool
	claims []claim
	grants map[*modelGrant]*modelQP // used or changed, and by whose request
}

// A modelDevice describes a device as the model knows it.
type modelDevice struct {
	*provider.Miniport
	n         int
	limits    map[string]uint32
	used      map[string]uint32
	endpoints map[uint16]*modelEndpoint
	tokens    map[uint32]*modelRegion // that are valid
	disabled  bool
	counters  provider.Counters // but for the traffic
}

// A consumer is an instance of an adapter, and what was made on it.
type consumer struct {
	entity
	*provider.Adapter
	device    *modelDevice
	arena     *arena
	cqs       []*modelCQ
	pds       []*modelPD
	srqs      []*modelSRQ
	mrs       []*modelMR
	mws       []*modelMW
	qps       []*modelQP
	lams      []*modelLAM
	shared    []*modelShared
	listeners []*modelListener
	conns     []*modelConn
}

const (
	modelTransfer = 16000 // MaxTransferLength, more than three packets
	modelInline   = 64
	modelDepth    = 6 // of queue pairs
	modelSGE      = 3
	modelPrivate  = 20
)

func newModel(t *testing.T, rt *rapid.T) *model {
	m := &model{t: rt, w: &world{t: t, clock: clock.NewVirtual()}, grants: map[*modelGrant]*modelQP{}}
	m.lossy, m.pend = m.coin("lossy"), m.coin("pend")
	m.w.path = &sim.Impaired{Rand: rand.New(rand.NewPCG(m.seed(), 0)), Delay: 10 * time.Microsecond, Rate: 10e9}
	m.disturb()
	m.w.network = sim.NewNetwork(m.w.clock, m.w.path)
	m.info = provider.DefaultAdapterInfo()
	m.info.MaxTransferLength, m.info.MaxReadRequestSge = modelTransfer, modelSGE-1
	m.info.MaxCallerData, m.info.MaxCalleeData = modelPrivate, modelPrivate
	m.info.MaxCqDepth, m.info.MaxSrqDepth = 64, 8
	for _, flag := range []provider.AdapterFlags{
		provider.AdapterReadSinkNotRequired, provider.AdapterReadLocalInvalidate, provider.AdapterCQResize,
	} {
		if !m.coin("adapter flag") {
			m.info.AdapterFlags &^= flag
		}
	}
	for i := range m.devices {
		cfg := m.w.config(m.w.network.Attach(mtu, addresses[i]))
		cfg.Info, cfg.Pend = m.info, m.pend
		cfg.Capabilities = provider.Capabilities{
			MaxQpCount: 9, MaxCqCount: 8, MaxMrCount: 12, MaxPdCount: 5, MaxMwCount: 5, MaxSrqCount: 4,
		}
		m.devices[i] = &modelDevice{
			Miniport: m.w.start(cfg), n: i,
			limits:    map[string]uint32{"QP": 9, "CQ": 8, "MR": 12, "PD": 5, "MW": 5, "SRQ": 4},
			used:      map[string]uint32{},
			endpoints: map[uint16]*modelEndpoint{}, tokens: map[uint32]*modelRegion{},
		}
	}
	for i := range 4 {
		c := &consumer{Adapter: must(m.devices[i/2].OpenAdapter(anyVersion)), device: m.devices[i/2], arena: newArena(uint64(i))}
		c.entity = entity{m: m, of: c, name: fmt.Sprintf("consumer %d", i)}
		m.consumers = append(m.consumers, c)
	}
	m.equip()
	return m
}

// disturb has the path be as bad as it is to be.
func (m *model) disturb() {
	m.calm = !m.lossy
	if m.lossy {
		m.w.path.Loss, m.w.path.Duplicate, m.w.path.Reorder, m.w.path.Corrupt = 0.05, 0.05, 0.1, 0.01
	}
}

// calmFor has no packet of a queue pair's get lost until all is at rest if its end
// may overrun a CQ: others would end with it, or not.
func (m *model) calmFor(q *modelQP) {
	if q == nil {
		return
	}
	room := func(c *modelCQ) int { return c.depth - len(c.entries) - 1 }
	if n := len(q.blocked) + len(q.receives) + 1; room(q.initiatorCQ) < n || room(q.receiveCQ) < n {
		m.calm = true
		m.w.path.Loss, m.w.path.Duplicate, m.w.path.Reorder, m.w.path.Corrupt = 0, 0, 0, 0
	}
}

// settle has everything come to rest, as the model says that it does, and checks
// what there is to see.
func (m *model) settle() {
	for _, q := range m.qps() {
		m.startDeferred(q)
	}
	wrong := ""
	atRest := func() bool { wrong = m.lacking(); return wrong == "" }
	if !m.w.clock.RunUntil(atRest, 10*time.Second) {
		m.logf("at %v, after ten seconds: %s", m.w.clock.Now(), wrong)
		if !m.w.clock.RunUntil(atRest, time.Minute) {
			m.t.Fatalf("at %v, after a minute: %s", m.w.clock.Now(), wrong)
		}
	}
	m.w.clock.Run(time.Millisecond) // for what ought not to happen
	var toFlush []*modelQP
	for _, q := range m.qps() {
		if m.settleFailure(q) {
			toFlush = append(toFlush, q)
		}
		q.atRest()
	}
	for _, c := range m.conns() {
		m.settleHearsay(c)
	}
	m.disturb()
	m.posted, m.claims = false, nil
	clear(m.grants)
	m.check()
	for _, q := range toFlush {
		m.actFlush(q)
	}
}

// lacking says what is still to happen; it is empty if all has happened.
func (m *model) lacking() string {
	for _, d := range m.devices {
		busy := d.Busy()
		if want := m.busy(d); busy != want {
			return fmt.Sprintf("device %d: %d queue pairs wait for their peers, want %d", d.n, busy, want)
		}
		if free, all := d.FreeCredit(), d.Credit(); busy == 0 && free != all {
			return fmt.Sprintf("device %d: %d of %d bytes of credit are left", d.n, free, all)
		}
	}
	for _, d := range m.devices {
		if got, want := d.Counters().ActiveConnection, d.counters.ActiveConnection; got != want {
			return fmt.Sprintf("device %d: %d connections, want %d", d.n, got, want)
		}
	}
	for _, c := range m.calls {
		if c.want != nil && !c.over() {
			return fmt.Sprintf("%s has not ended, want %v", c.what, c.want)
		}
	}
	for _, c := range m.conns() {
		if c.events < c.wantEvents {
			return c.name + ": no disconnect event"
		}
	}
	for _, c := range m.cqs() {
		if c.closing == nil && len(c.told) < len(c.wantTold) {
			return c.name + ": no notification"
		}
		if got, want := c.Len(), len(c.entries); got != want && !c.unsure() {
			return fmt.Sprintf("%s: %d entries, want %d", c.name, got, want)
		}
	}
	for _, s := range m.srqs() {
		if s.closing == nil && s.told < s.wantTold {
			return s.name + ": no notification"
		}
	}
	return ""
}

// check compares what can be seen when all is at rest.
func (m *model) check() {
	if lacking := m.lacking(); lacking != "" {
		m.t.Fatal(lacking)
	}
	m.checkCalls()
	for _, c := range m.conns() {
		if c.events > c.wantEvents {
			m.t.Fatalf("%s: %d disconnect events, want %d", c.name, c.events, c.wantEvents)
		}
	}
	for _, l := range m.listeners() {
		if len(l.delivered) > 0 {
			m.t.Fatalf("%s: a connect event that should not be", l.name)
		}
	}
	for _, c := range m.cqs() {
		c.checkTold()
	}
	for _, s := range m.srqs() {
		if s.told > s.wantTold || s.told < s.wantTold && s.closing == nil {
			m.t.Fatalf("%s: %d notifications, want %d", s.name, s.told, s.wantTold)
		}
	}
	for _, c := range m.consumers {
		if at := c.arena.difference(); at >= 0 {
			m.t.Fatalf("%s: byte %#x is %#x, want %#x", c.name, at, c.arena.real[at], c.arena.want[at])
		}
		queues := 0
		for _, e := range m.entities {
			if e.of == c && (e.kind == "CQ" || e.kind == "SRQ") {
				queues++
			}
		}
		if got := c.Queues(); got != queues {
			m.t.Fatalf("%s: %d queues, want %d", c.name, got, queues)
		}
	}
	for _, d := range m.devices {
		if got, want := d.InUse()-d.IDs(), m.inUse(d); got != want {
			m.t.Fatalf("device %d: %d entries in its tables, want %d", d.n, got, want)
		}
		got := d.Counters()
		got.RDMAInOctets, got.RDMAOutOctets, got.RDMAInFrames, got.RDMAOutFrames = 0, 0, 0, 0
		if more := got.ConnectionError - d.counters.ConnectionError; m.lossy && more <= 2 {
			// An end finds the error itself or hears of it first, depending on what
			// gets lost.
			d.counters.ConnectionError = got.ConnectionError
		}
		if got != d.counters {
			m.t.Fatalf("device %d: counted %+v, want %+v", d.n, got, d.counters)
		}
	}
}

// inUse returns the number of endpoints, queue pairs, tokens and mappings that a
// device has.
func (m *model) inUse(d *modelDevice) int {
	n := len(d.endpoints)
	for _, e := range m.entities {
		if e.of.device != d {
			continue
		}
		switch o := e.self.(type) {
		case *modelQP, *modelLAM:
			n++
		case *modelMR:
			if o.region != nil || o.grant != nil && o.closing == nil {
				n++
			}
		case *modelMW:
			if o.closing == nil {
				n++
			}
		}
	}
	return n
}

// end closes everything that is left, in any order, and then the devices.
func (m *model) end() {
	m.settle()
	for _, q := range m.cqs() {
		if q.closing == nil {
			m.poll(q, 1000, true)
		}
	}
	// Adapters first: their ends wait for all else.
	closes := 0
	for _, c := range m.consumers {
		if m.coin("close the adapter first") {
			m.closeAdapter(c, &closes)
		}
	}
	for {
		open := m.closable(nil)
		if len(open) == 0 {
			break
		}
		m.close(pick(m, "close", open))
	}
	for _, c := range m.consumers {
		if c.closing == nil {
			m.closeAdapter(c, &closes)
		}
	}
	m.settle()
	if closes != len(m.consumers) || len(m.entities) > 0 {
		m.t.Fatalf("%d of %d adapters are closed, %d objects are left", closes, len(m.consumers), len(m.entities))
	}
	ended := 0
	for _, d := range m.devices {
		if d.disabled {
			m.is("SetState", d.SetState(true), provider.StatusSuccess)
			must(d.OpenAdapter(anyVersion)).BeginClose(func() {})
		}
		d.BeginClose(func() { ended++ })
	}
	if !m.w.clock.RunUntil(func() bool { return ended == 2 }, time.Minute) {
		m.t.Fatal("the devices do not end")
	}
	m.w.clock.Run(time.Millisecond) // packets that were under way
	if m.w.clock.Step() {
		m.t.Fatal("something is still scheduled after everything was closed")
	}
}

func (m *model) closeAdapter(c *consumer, closes *int) {
	m.logf("%s: close", c.name)
	done := m.call(&c.entity, "BeginClose", provider.StatusSuccess)
	done.want = nil
	done.returned = provider.StatusPending
	c.closing = done
	c.BeginClose(func() { *closes++; done.closed(&done.async) })
	c.leaveIfFree()
	m.settle()
}

// logf says what is done next.
func (m *model) logf(format string, args ...any) { m.t.Logf(format, args...) }

// is fails unless a call returned one of the statuses wanted.
func (m *model) is(what string, got provider.Status, want ...provider.Status) {
	if !slices.Contains(want, got) {
		m.t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

func (m *model) coin(label string) bool { return rapid.Bool().Draw(m.t, label) }

func (m *model) seed() uint64 { return rapid.Uint64().Draw(m.t, "seed") }

// below is a number from 0 to n-1.
func (m *model) below(n int, label string) int { return rapid.IntRange(0, n-1).Draw(m.t, label) }

// oneIn is true in one of n cases, and false where rapid simplifies.
func (m *model) oneIn(n int, label string) bool {
	return rapid.SampledFrom(outOf[:n]).Draw(m.t, label) == n-1
}

var outOf = func() (n []int) {
	for i := range 100 {
		n = append(n, i)
	}
	return n
}()

func pick[T any](m *model, label string, from []T) T {
	return from[rapid.SampledFrom(outOf[:len(from)]).Draw(m.t, label)]
}

// An arena is a consumer's memory, and what ought to be in it.
type arena struct{ real, want []byte }

const arenaSize = 48 << 10

func newArena(seed uint64) *arena {
	a := &arena{real: make([]byte, arenaSize)}
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range a.real {
		a.real[i] = byte(r.Uint32())
	}
	a.want = bytes.Clone(a.real)
	return a
}

// difference returns the index of the first wrong byte, -1 if there is none.
func (a *arena) difference() int {
	if bytes.Equal(a.real, a.want) {
		return -1
	}
	for i := range a.real {
		if a.real[i] != a.want[i] {
			return i
		}
	}
	return -1
}
