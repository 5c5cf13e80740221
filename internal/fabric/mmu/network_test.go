package mmu

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/acceptance/ns3"
	"github.com/ndklab/ndklab/internal/provider/congestion"
)

// A network is a fabric in virtual time: hosts that send as fast as their line and their congestion
// control let them, and obey pauses; and switches. A packet is at a node once its last bit is.
//
// Nodes are switches first, and then hosts, which have port 0 alone.
type network struct {
	t        *testing.T
	now      time.Duration
	events   []event // a heap
	order    uint64
	switches []*Switch[*packet]
	members  []Member
	due      []time.Duration // when each switch is called
	wires    [][]*wire       // by node and port: what leaves there
	hosts    []*host
	flows    []*flow
	route    func(sw int, p *packet) (port int, ok bool)
	spare    []*packet

	drops    [verdicts]int
	stops    bool // at a deadlock
	deadlock []Queue
	when     time.Duration // of the deadlock
	sampled  time.Duration // until when queues has a queue's length each microsecond
	queues   []int64
	first    map[string]time.Duration // when something happened first: mark, pause, drop
}

// The classes of data and of CNPs, and bytes on the wire as the reference simulator counts them.
const (
	data, control = 3, 6
	payload       = ns3.Payload
	onWire        = ns3.Frame
)

type wire struct {
	peer, port int
	rate       uint64
	delay      time.Duration
	free       time.Duration // when the last transmission ended
	rest       uint64        // of a nanosecond, in units of 1/rate ns, by which it was later
	busy       bool
}

type packet struct {
	flow   *flow
	bytes  int
	class  int
	to     int // node
	ttl    int
	marked bool
	cnp    bool
	isPFC  bool
	pfc    PFC
}

type flow struct {
	from, to int // nodes
	start    time.Duration
	left     int // packets to send
	packets  int
	got      int
	doneAt   time.Duration
	pacer    *congestion.Pacer // nil: none
	notifier congestion.Notifier
	cnp      congestion.CNP
	ttl      int
}

type host struct {
	node   int
	flows  []*flow
	next   int
	cnps   []*packet
	until  [Classes]time.Duration // paused
	wakeAt time.Duration
}

type event struct {
	at    time.Duration
	order uint64
	kind  uint8
	node  int32
	port  int32
	p     *packet
}

const (
	arrives uint8 = iota
	sent
	wakes   // a host
	advance // a switch
	samples
)

func (n *network) push(e event) {
	e.order = n.order
	n.order++
	h := append(n.events, e)
	i := len(h) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !h[i].before(&h[up]) {
			break
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
	n.events = h
}

func (e *event) before(f *event) bool { return e.at < f.at || e.at == f.at && e.order < f.order }

func (n *network) pop() event {
	h := n.events
	first := h[0]
	last := len(h) - 1
	h[0] = h[last]
	h = h[:last]
	i := 0
	for {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(h); c++ {
			if h[c].before(&h[least]) {
				least = c
			}
		}
		if least == i {
			break
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
	n.events = h
	return first
}

// A line joins two nodes.
type line struct {
	a, b int
	gbps uint64
}

// delay is that of every line (congestion.md d).
const delay = time.Microsecond

// newNetwork makes a fabric of switches and hosts by the preset of the reference simulator.
func newNetwork(t *testing.T, switches, hosts int, size int64, lines []line, change func(sw int, c *Config)) *network {
	t.Helper()
	n := &network{t: t, first: map[string]time.Duration{}, wires: make([][]*wire, switches+hosts)}
	for _, l := range lines {
		wa := &wire{peer: l.b, port: len(n.wires[l.b]), rate: l.gbps * 1e9, delay: delay}
		wb := &wire{peer: l.a, port: len(n.wires[l.a]), rate: l.gbps * 1e9, delay: delay}
		n.wires[l.a], n.wires[l.b] = append(n.wires[l.a], wa), append(n.wires[l.b], wb)
	}
	for sw := range switches {
		var ports []Line
		for _, w := range n.wires[sw] {
			ports = append(ports, Line{Rate: w.rate, Delay: w.delay, MaxFrame: onWire})
		}
		c, err := Preset("hpcc", classSet(1<<data), ports)
		if err != nil {
			t.Fatal(err)
		}
		c.Name, c.Size = fmt.Sprint("s", sw), size
		if change != nil {
			change(sw, &c)
		}
		s, err := New[*packet](c)
		if err != nil {
			t.Fatal(err)
		}
		n.switches = append(n.switches, s)
		n.members = append(n.members, s)
		n.due = append(n.due, never)
	}
	for h := range hosts {
		n.hosts = append(n.hosts, &host{node: switches + h, wakeAt: never})
	}
	n.route = n.shortest()
	return n
}

// shortest routes by the fewest lines, by the first port among equals.
func (n *network) shortest() func(int, *packet) (int, bool) {
	table := make([][]int, len(n.wires))
	for to := range n.wires {
		table[to] = make([]int, len(n.wires))
		seen := map[int]bool{to: true}
		for queue := []int{to}; len(queue) > 0; queue = queue[1:] {
			for _, w := range n.wires[queue[0]] {
				if !seen[w.peer] {
					seen[w.peer] = true
					table[to][w.peer] = w.port
					queue = append(queue, w.peer)
				}
			}
		}
	}
	return func(sw int, p *packet) (int, bool) { return table[p.to][sw], true }
}

// add makes a flow of so many bytes of payload. p and cnp are nil for one without congestion control.
func (n *network) add(from, to, bytes int, p *congestion.DCQCN, cnp congestion.CNP) *flow {
	packets := (bytes + payload - 1) / payload
	f := &flow{from: from, to: to, packets: packets, left: packets, cnp: cnp}
	if p != nil {
		line := float64(n.wires[from][0].rate)
		f.pacer = congestion.NewPacer(congestion.NewDCQCN(p, line), line, 0, 0)
	}
	n.flows = append(n.flows, f)
	h := n.host(from)
	h.flows = append(h.flows, f)
	n.push(event{at: 0, kind: wakes, node: int32(from)})
	return f
}

func (n *network) host(node int) *host { return n.hosts[node-len(n.switches)] }

// run runs until an instant, or until all flows are done or in a deadlock.
func (n *network) run(until time.Duration) {
	for len(n.events) > 0 && n.events[0].at <= until {
		e := n.pop()
		n.now = e.at
		switch e.kind {
		case arrives:
			n.arrive(int(e.node), int(e.port), e.p)
		case sent:
			n.wires[e.node][e.port].busy = false
			n.transmit(int(e.node), int(e.port))
		case wakes:
			h := n.host(int(e.node))
			if h.wakeAt <= n.now {
				h.wakeAt = never
			}
			n.transmit(int(e.node), 0)
		case advance:
			if n.due[e.node] == n.now {
				n.due[e.node] = never
			}
			n.switches[e.node].Advance(n.now)
			n.after(int(e.node))
			n.deadlines(int(e.node))
		}
		if e.kind == samples {
			n.queues = append(n.queues, n.switches[0].Queued(int(e.port), data))
			if n.now < n.sampled {
				n.push(event{at: n.now + time.Microsecond, kind: samples, port: e.port})
			}
		}
		if n.stops && n.deadlock != nil {
			return
		}
	}
	n.now = until
}

// after does what a switch calls for.
func (n *network) after(sw int) {
	s := n.switches[sw]
	for port, ok := s.Wake(); ok; port, ok = s.Wake() {
		n.transmit(sw, port)
	}
	for d, ok := s.Discarded(); ok; d, ok = s.Discarded() {
		n.drops[Storm]++
		n.spare = append(n.spare, d.Packet)
	}
}

// deadlines has the switch called at its deadline.
func (n *network) deadlines(sw int) {
	if at, _ := n.switches[sw].Deadline(); at < n.due[sw] {
		n.due[sw] = at
		n.push(event{at: at, kind: advance, node: int32(sw)})
	}
}

func (n *network) arrive(node, port int, p *packet) {
	if node >= len(n.switches) {
		n.receive(n.host(node), p)
		n.spare = append(n.spare, p)
		return
	}
	s := n.switches[node]
	if p.isPFC {
		s.Paused(n.now, port, p.pfc)
		n.spare = append(n.spare, p)
		if n.deadlock == nil {
			if n.deadlock = Deadlock(n.members, n.peer); n.deadlock != nil {
				n.when = n.now
			}
		}
	} else {
		out, ok := n.route(node, p)
		if !ok {
			n.spare = append(n.spare, p)
			return
		}
		if v := s.Arrive(n.now, port, out, p.class, p.bytes, !p.cnp && p.flow.pacer != nil, p); v != Admitted {
			n.drops[v]++
			n.note("drop")
			n.spare = append(n.spare, p)
		}
	}
	n.after(node)
	n.deadlines(node)
}

// peer is that of Deadlock.
func (n *network) peer(sw, port int) (int, int, bool) {
	w := n.wires[sw][port]
	return w.peer, w.port, w.peer < len(n.switches)
}

func (n *network) receive(h *host, p *packet) {
	switch f := p.flow; {
	case p.isPFC:
		for class := range Classes {
			if p.pfc.Enabled>>class&1 == 0 {
				continue
			}
			h.until[class] = n.now + QuantaTime(p.pfc.Quanta[class], n.wires[h.node][0].rate)
			n.wake(h, h.until[class])
		}
	case p.cnp:
		f.pacer.Notified(n.now)
		n.transmit(h.node, 0)
	default:
		if f.got++; f.got == f.packets {
			f.doneAt = n.now
		}
		if p.marked && f.notifier.Marked(n.now, &f.cnp) {
			cnp := n.packet()
			*cnp = packet{flow: f, bytes: PauseFrame, class: control, to: f.from, cnp: true}
			h.cnps = append(h.cnps, cnp)
			n.transmit(h.node, 0)
		}
	}
}

func (n *network) packet() *packet {
	if last := len(n.spare) - 1; last >= 0 {
		p := n.spare[last]
		n.spare = n.spare[:last]
		return p
	}
	return new(packet)
}

func (n *network) wake(h *host, at time.Duration) {
	if at < h.wakeAt {
		h.wakeAt = at
		n.push(event{at: at, kind: wakes, node: int32(h.node)})
	}
}

// transmit sends the next packet of a port, if there is one and the wire is free.
func (n *network) transmit(node, port int) {
	w := n.wires[node][port]
	if w.busy {
		return
	}
	var p *packet
	if node >= len(n.switches) {
		p = n.pull(n.host(node))
	} else {
		s := n.switches[node]
		if f, ok := s.Pause(n.now, port); ok {
			p = n.packet()
			*p = packet{bytes: PauseFrame, isPFC: true, pfc: f}
			n.note("pause")
		} else if d, ok := s.Next(n.now, port); ok {
			p = d.Packet
			if d.Marked {
				p.marked = true
				n.note("mark")
			}
		}
		n.deadlines(node)
	}
	if p != nil {
		rest := w.rest
		if w.free != n.now {
			rest = 0
		}
		total := uint64(p.bytes)*8*uint64(time.Second) + rest
		w.free, w.rest = n.now+time.Duration(total/w.rate), total%w.rate
		w.busy = true
		n.push(event{at: w.free, kind: sent, node: int32(node), port: int32(port)})
		n.push(event{at: w.free + w.delay, kind: arrives, node: int32(w.peer), port: int32(w.port), p: p})
	}
	if node < len(n.switches) {
		n.after(node)
	}
}

// pull returns the next packet of a host: CNPs first, then flows by turns.
func (n *network) pull(h *host) *packet {
	if len(h.cnps) > 0 {
		p := h.cnps[0]
		h.cnps = h.cnps[1:]
		return p
	}
	next := never
	for range h.flows {
		f := h.flows[h.next%len(h.flows)]
		h.next = (h.next + 1) % len(h.flows)
		if f.left == 0 {
			continue
		}
		at := max(f.start, h.until[data])
		if f.pacer != nil {
			at = max(at, f.pacer.Deadline(n.now))
		}
		if at > n.now {
			next = min(next, at)
			continue
		}
		if f.pacer != nil {
			if f.pacer.Next(n.now) > n.now {
				continue
			}
			f.pacer.Sent(n.now, onWire)
		}
		f.left--
		p := n.packet()
		*p = packet{flow: f, bytes: onWire, class: data, to: f.to, ttl: f.ttl}
		return p
	}
	if next != never {
		n.wake(h, next)
	}
	return nil
}

// share returns the goodput of a flow as a share of what a line of a rate carries.
func (f *flow) share(gbps float64) float64 {
	if f.doneAt == 0 {
		return 0
	}
	return float64(f.packets) * onWire * 8 / (f.doneAt - f.start).Seconds() / (gbps * 1e9)
}

// jain returns the fairness of shares.
func jain(shares []float64) float64 {
	var sum, squares float64
	for _, x := range shares {
		sum += x
		squares += x * x
	}
	return sum * sum / (squares * float64(len(shares)))
}

func (n *network) note(what string) {
	if _, ok := n.first[what]; !ok {
		n.first[what] = n.now
	}
}

// sample has the length of a queue of switch 0 taken for a time.
func (n *network) sample(port int, until time.Duration) {
	n.sampled = until
	n.push(event{kind: samples, port: int32(port)})
}

// medianKB returns that of the samples.
func (n *network) medianKB() float64 {
	slices.Sort(n.queues)
	return float64(n.queues[len(n.queues)/2]) / 1000
}

// pauses returns how many PFC frames switches sent.
func (n *network) pauses() (frames uint64) {
	for i, s := range n.switches {
		for port := range n.wires[i] {
			frames += s.Counters(n.now, port, data).TxPause
		}
	}
	return frames
}

// peakKB returns the peak of a switch's queue of data.
func (n *network) peakKB(sw, port int) float64 {
	return float64(n.switches[sw].Counters(n.now, port, data).QueuePeak) / 1000
}

func (n *network) dropped() (all int) {
	for _, d := range n.drops {
		all += d
	}
	return all
}
