package linkem

import (
	"net/netip"
	"slices"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/bufferstats"
	"github.com/ndklab/ndklab/internal/fabric/dataplane"
	"github.com/ndklab/ndklab/internal/fabric/frame"
	"github.com/ndklab/ndklab/internal/fabric/impair"
	"github.com/ndklab/ndklab/internal/fabric/series"
	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/topology"
)

// A Fabric describes the switches with a packet buffer to the engine, which carries them in the place of bridges of the
// kernel, with the links at them and the adapters of the hosts there.
type Fabric struct {
	Topology       *topology.Topology
	ReceiveBuffers map[string]int64 // of the adapters of hosts, bytes
	Addresses      [][2]MAC         // of the ends of all links
}

// BufferFigures are those of the buffers of switches and adapters since Begin, and of queues over time if
// the topology has a series.
type BufferFigures struct {
	Buffers   []bufferstats.Buffer   `json:"buffers"`
	Deadlocks []bufferstats.Deadlock `json:"deadlocks"`
	Series    *series.Series         `json:"series"`
	// Counters are those of adapters by node and name, since the engine began, which agents do not count: of pauses that adapters
	// ask for (topology.PauseCounter), and "receive_overflow", of packets for which an adapter had no room.
	Counters map[string]map[string]uint64 `json:"counters"`
	Known    map[string][]int             `json:"known"` // by switch and port: how many stations it knows to be behind that
}

// A fabric is the switches with a packet buffer, and the links at them. Frames that arrive at a port enter a plane
// (package dataplane) at the instant at which the kernel had received them. The plane's clock follows the fabric's time: what was
// due in the meantime is carried out for the instant at which it was due. Frames that leave the last wire are sent then.
//
// It belongs to the loop's thread.
type fabric struct {
	*epoch
	ingress  *ingress
	egress   *egress
	clock    *clock.Virtual
	plane    *dataplane.Plane[*packet]
	topology *topology.Topology
	switches map[string]*bridge
	routers  map[string]*router
	// neighbours has the addresses of Ethernet that all interfaces have, by IP address.
	neighbours map[netip.Addr]MAC
	lines      [][2]*line // by link; nil: the link is at no switch with a buffer
	macs       [][2]MAC   // of the ends of all links
	unused     *packet    // a list
	exits      []*line    // that have frames to send
	// deadlocks has those that the supervisor is still to be told of.
	deadlocks chan bufferstats.Deadlock
	full      map[string]uint64 // by host: packets that its adapter had no room for
	retry     time.Duration     // when to send again where an interface took no more, by the machine's time; 0: never
	ran       time.Duration     // when catchUp was called last, likewise
	identity  impair.Identity

	recorder *series.Recorder // nil: the topology has no series
	queues   *dataplane.Queues[*packet]
	began    time.Duration // when the present period did
	sampling clock.Timer   // takes the next point
}

// runInterval is the least time between two runs of the plane, in which events gather: to be there for each of hundreds of
// thousands in a second would cost more than they do. A frame leaves that much late at most.
const runInterval = 30 * time.Microsecond

// newFabric returns the switches of a description, and makes their links known to a table.
func newFabric(d *Fabric, l *loop) (*fabric, error) {
	t := d.Topology
	f := &fabric{
		epoch: l.links.epoch, ingress: &l.ingress, egress: &l.egress, clock: clock.NewVirtual(), topology: t,
		switches: map[string]*bridge{}, routers: map[string]*router{}, neighbours: map[netip.Addr]MAC{}, full: map[string]uint64{}, deadlocks: make(chan bufferstats.Deadlock, 16), lines: make([][2]*line, len(t.Links)), macs: d.Addresses,
	}
	f.clock.Advance(f.fabric(f.now()))
	f.plane = dataplane.New(f.clock, dataplane.Owner[*packet](f), t)
	added := map[string]*link{}
	for i, buffered := range t.BufferedLinks() {
		if !buffered {
			continue
		}
		spec := &t.Links[i]
		k := &link{name: spec.Endpoints[0].String(), state: detached}
		for direction := range k.lines {
			n := newLine(k, direction, impair.New(t.Seed, k.name, direction))
			n.fabric = f
			n.wire = f.plane.AddWire(i, direction, n.model, &n.stats)
			n.wire.Set(spec.Directions[direction])
			n.wire.Carry(false)
			k.lines[direction] = n
			f.lines[i][direction] = n
		}
		added[k.name] = k
	}
	if err := f.plane.AddBuffers(func(n *topology.Node) int64 { return d.ReceiveBuffers[n.Name] }); err != nil {
		return nil, control.Errorf(control.Usage, "%v", err)
	}
	for i := range t.Nodes {
		n := &t.Nodes[i]
		for _, face := range n.Interfaces {
			for _, a := range face.Addresses {
				f.neighbours[a.Addr()] = d.Addresses[face.Link][face.End]
			}
		}
		switch {
		case n.Buffer == nil:
		case n.Kind == topology.Router:
			f.routers[n.Name] = f.newRouter(n)
		default:
			f.switches[n.Name] = newBridge(t, n, d.Addresses)
		}
	}
	for name, k := range added {
		if l.links.byName[name] != nil {
			return nil, control.Errorf(control.Usage, "the engine has a link %s already", name)
		}
		l.links.byName[name] = k
	}
	f.begin()
	return f, nil
}

// begin has figures begin anew.
func (f *fabric) begin() {
	f.catchUp()
	f.began = f.clock.Now()
	f.plane.Begin()
	if f.sampling != nil {
		f.sampling.Stop()
	}
	if s := f.topology.Series; s != nil {
		f.recorder = series.New(s.Period)
		f.queues = f.plane.Record(f.recorder)
		f.sampling = f.clock.AfterFunc(f.recorder.Due(), f.sample)
	}
}

// sample takes a point of the series.
func (f *fabric) sample() {
	f.queues.Set()
	f.recorder.Next()
	f.sampling.Reset(f.began + f.recorder.Due() - f.clock.Now())
}

// carry has a line carry frames, or lose them.
func (f *fabric) carry(n *line, frames bool) {
	f.catchUp()
	n.wire.Carry(frames)
	for _, r := range f.routers {
		clear(r.found)
	}
}

// setRoutes has a router take other routes. f may be nil.
func (f *fabric) setRoutes(s routesParams) error {
	if f == nil || f.routers[s.Node] == nil {
		return control.Errorf(control.Usage, "%s is no router with a buffer", s.Node)
	}
	f.catchUp()
	f.routers[s.Node].setRoutes(s.Routes)
	return nil
}

// storm begins a storm of the adapter of a host. f may be nil.
func (f *fabric) storm(s stormParams) error {
	var b *dataplane.Buffer[*packet]
	if f != nil {
		f.catchUp()
		b = f.plane.Buffer(s.Node)
	}
	if b == nil || b.OfSwitch() {
		return control.Errorf(control.Usage, dataplane.NoStorm, s.Node)
	}
	b.Storm(s.Priority, f.clock.Now()+s.For)
	return nil
}

// figures returns those since begin.
func (f *fabric) figures() BufferFigures {
	f.catchUp()
	r := BufferFigures{Buffers: f.plane.Figures(), Deadlocks: slices.Clone(f.plane.Deadlocks()), Counters: map[string]map[string]uint64{}, Known: map[string][]int{}}
	for i := range f.topology.Nodes {
		n := &f.topology.Nodes[i]
		if b := f.plane.Buffer(n.Name); b != nil && !b.OfSwitch() {
			r.Counters[n.Name] = f.counters(b)
		}
	}
	for name, b := range f.switches {
		r.Known[name] = b.known()
	}
	if f.recorder != nil {
		r.Series = f.recorder.Report()
	}
	return r
}

// counters returns those of a host's adapter, of the priorities of its pfc.
func (f *fabric) counters(b *dataplane.Buffer[*packet]) map[string]uint64 {
	n := b.Node()
	counters := map[string]uint64{receiveOverflow: f.full[n.Name]}
	if n.Adapter.PFC != nil {
		for _, class := range *n.Adapter.PFC {
			b.CountPauses(counters, class)
			for _, c := range []topology.PauseCounter{topology.RxPause, topology.RxPauseDuration, topology.RxPauseTransition} {
				delete(counters, c.Of(class)) // which the node's agent counts, as it obeys
			}
		}
	}
	return counters
}

// receiveOverflow is the name that carriers have for that counter.
const receiveOverflow = "receive_overflow"

// deadline returns when run is to be called; false if nothing is due. f may be nil.
func (f *fabric) deadline() (at time.Duration, ok bool) {
	if f == nil {
		return 0, false
	}
	at, ok = f.clock.Next()
	if f.retry > 0 && (!ok || f.retry < f.machine(at)) {
		return f.retry, true
	}
	return max(f.machine(at), f.ran+runInterval), ok
}

// run has happen what is due, and sends what has left the last wire. f may be nil.
func (f *fabric) run() {
	if f == nil {
		return
	}
	f.catchUp()
	f.retry = 0
	exits := f.exits
	f.exits = f.exits[:0]
	for _, n := range exits {
		if left := f.egress.sendDepartures(n); left {
			f.retry = f.now() + retryAfter
			f.exits = append(f.exits, n)
		}
	}
}

// catchUp has happen what is due.
func (f *fabric) catchUp() {
	f.ran = f.now()
	f.advance(f.fabric(f.ran))
}

// advance has happen what is due until an instant of the fabric's time.
func (f *fabric) advance(until time.Duration) { f.clock.Run(until - f.clock.Now()) }

// An inbox has the frames that came from a node and are still to enter the plane, in the order in which they came.
type inbox struct {
	frames []*packet
	head   int
	timer  clock.Timer
}

// take has the packets of a frame, that is in staging buffer i and has arrived at an instant, enter the plane.
func (f *fabric) take(n *line, fr *frame.Frame, i int, arrived time.Duration) {
	held := f.ingress.hold(n, *fr, i, arrived)
	if held == nil {
		n.stats.Counts.Packets += uint64(fr.Segments())
		n.stats.Counts.LostOverrun += uint64(fr.Segments())
		return
	}
	at := held.frame.Layers()
	for segment := range held.frame.Segments() {
		p := f.packet(held, n)
		p.pause, p.isPause = pauseIn(held.frame.Packet())
		p.segment, p.layers, p.arrived = int32(segment), at, f.fabric(arrived)
		n.inbox.frames = append(n.inbox.frames, p)
	}
	if len(n.inbox.frames)-n.inbox.head == held.frame.Segments() {
		f.arm(n)
	}
}

// arm has the first frame of an inbox enter when it had arrived.
func (f *fabric) arm(n *line) {
	wait := n.inbox.frames[n.inbox.head].arrived - f.clock.Now()
	if n.inbox.timer == nil {
		n.inbox.timer = f.clock.AfterFunc(wait, func() { f.enter(n) })
	} else {
		n.inbox.timer.Reset(wait)
	}
}

// enter has those frames of an inbox enter the plane that had arrived by now.
func (f *fabric) enter(n *line) {
	b := &n.inbox
	for b.head < len(b.frames) {
		p := b.frames[b.head]
		if p.arrived > f.clock.Now() {
			f.arm(n)
			return
		}
		b.frames[b.head] = nil
		b.head++
		from := n.wire.From
		switch _, pauses := f.Pause(p); {
		case pauses || from == nil:
			n.wire.Enter(p)
		case from.OfSwitch(): // a router's kernel has sent it
			from.Take(p, n.wire.Out, n.wire.Out)
		default:
			from.Take(p, from.Adapter(), n.wire.Out)
		}
	}
	b.frames, b.head = b.frames[:0], 0
}
