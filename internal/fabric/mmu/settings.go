package mmu

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/ndklab/ndklab/internal/fabric/impair"
	"github.com/ndklab/ndklab/topology"
)

// This file makes settings of what a topology says.

// ethernetLen is the length of an Ethernet header, bytes.
const ethernetLen = 14

// Settings returns the settings of a node that has a buffer. Its ports are the node's interfaces. The error
// says which of them make no sense together.
func Settings(t *topology.Topology, n *topology.Node) (Config, error) {
	lines := make([]Line, len(n.Interfaces))
	for i := range n.Interfaces {
		lines[i] = lineOf(t, &n.Interfaces[i])
	}
	p := n.Priorities
	if p == nil {
		p = &topology.Priorities{}
	}
	c, err := preset(string(n.Buffer.Preset), losslessOf(p), lines)
	if err != nil {
		return Config{}, err
	}
	c.Name, c.Seed = n.Name, t.Seed
	if n.Buffer.Size != nil {
		c.Size = int64(*n.Buffer.Size)
	}
	if w := n.Watchdog; w != nil {
		c.Watchdog = Watchdog{Detect: w.Detect, Restore: w.Restore, Forward: w.Action == topology.WatchdogForward}
	}
	for i := range c.Ports {
		face := &n.Interfaces[i]
		marks := marksOf(&c.Ports[i], t.Links[face.Link].Directions[face.End].ECN)
		for k := range c.Ports[i].Classes {
			class := &c.Ports[i].Classes[k]
			if class.Headroom > 0 && n.Buffer.Preset != topology.BufferTrident2 {
				class.Headroom = NeededHeadroom(t, face)
			}
			class.set(n.Buffer)
			class.Mark = marks[k]
			if s, ok := p.Schedule[uint32(k)]; ok {
				class.Weight = weightOf(s)
			} else if class.Weight > 0 {
				class.Weight *= percent // as those that are set are
			}
		}
	}
	return c, c.Validate()
}

// lineOf returns the line at an interface, as its node sends there.
func lineOf(t *topology.Topology, face *topology.Interface) Line {
	link := &t.Links[face.Link]
	delay := (link.Directions[0].Delay + link.Directions[1].Delay + 1) / 2 // a pause takes one, and what it meets the other
	return Line{Rate: link.Directions[face.End].Rate, Delay: delay, MaxFrame: impair.WireBytes(ethernetLen + link.MTU)}
}

// NeededHeadroom returns how many bytes may still arrive by an interface once its neighbour is to pause.
func NeededHeadroom(t *topology.Topology, face *topology.Interface) int64 {
	l := lineOf(t, face)
	l.Rate = max(l.Rate, t.Links[face.Link].Directions[1-face.End].Rate) // at which the neighbour sends
	return l.headroom()
}

func losslessOf(p *topology.Priorities) *uint8 {
	if p.Lossless == nil {
		return nil
	}
	var classes uint8
	for _, c := range p.Lossless {
		classes |= 1 << c
	}
	return &classes
}

// set has a class be as a buffer's keys say.
func (c *Class) set(b *topology.Buffer) {
	if !c.Lossless {
		if b.EgressAlpha != nil {
			c.EgressAlpha = *b.EgressAlpha
		}
		return
	}
	for _, key := range []struct {
		to  *int64
		set *uint64
	}{{&c.Reserve, b.Reserve}, {&c.Headroom, b.Headroom}, {&c.XOFF, b.XOFF}, {&c.Gap, b.Gap}} {
		if key.set != nil {
			*key.to = int64(*key.set)
		}
	}
	if b.Alpha != nil {
		c.Alpha = *b.Alpha
	}
}

// marksOf returns the marks of all classes at a port: those that are set for it, else the preset's, which the port has.
func marksOf(p *Port, set topology.ECN) (marks [Classes]WRED) {
	for k := range marks {
		if marks[k] = p.Classes[k].Mark; set.Max > 0 {
			marks[k] = WRED{Min: int64(set.Min), Max: int64(set.Max), Probability: cmp.Or(set.Probability, 1)}
		}
	}
	return marks
}

// Marks returns the marks of all classes at a port of a node with a buffer, where those of the port are set to be
// others than in the topology. Max 0 is that none are set.
func Marks(t *topology.Topology, n *topology.Node, port int, set topology.ECN) [Classes]WRED {
	without := *t
	without.Links = slices.Clone(t.Links)
	face := &n.Interfaces[port]
	without.Links[face.Link].Directions[face.End].ECN = set
	c, _ := Settings(&without, n) // the topology's are right, and marks do not make them wrong
	var marks [Classes]WRED
	for k := range marks {
		marks[k] = c.Ports[port].Classes[k].Mark
	}
	return marks
}

// percent is the unit of weights: the hundredth part of a per cent of what strict classes leave.
const percent = 100

func weightOf(s topology.Schedule) int {
	if s.Strict {
		return 0
	}
	return max(1, int(math.Round(s.Weight*100*percent)))
}

// Beside returns the node with a buffer that a host has a link to; nil if there is none.
func Beside(t *topology.Topology, host *topology.Node) *topology.Node {
	for i := range host.Interfaces {
		face := &host.Interfaces[i]
		if other := t.FindNode(t.Links[face.Link].Endpoints[1-face.End].Node); other != nil && other.Buffer != nil {
			return other
		}
	}
	return nil
}

// ClassesOf returns the classes of DSCPs at a node with a buffer, or with no such node.
func ClassesOf(n *topology.Node) (table DSCPTable) {
	classes := topology.DefaultDSCPClasses()
	if n != nil && n.Priorities != nil && n.Priorities.DSCP != nil {
		classes = n.Priorities.DSCP
	}
	for dscp, class := range classes {
		table[dscp] = uint8(class)
	}
	return table
}

// AdapterSettings returns the settings of a host's adapter, as a switch whose ports are the host's
// interfaces and, behind them, the adapter's own. The queues of what it sends are as long as they must be: queue
// pairs send as fast as the line lets them. receiveBuffer bounds, in bytes, what has arrived and is not taken yet. plainRate
// is that of links that have none, in bits per second.
func AdapterSettings(t *topology.Topology, n *topology.Node, receiveBuffer int64, plainRate uint64) (Config, error) {
	if len(n.Interfaces) == 0 {
		return Config{}, fmt.Errorf("mmu: node %s has no interfaces", n.Name)
	}
	c := Config{Name: n.Name, Seed: t.Seed, Size: maxSize / 2, Ports: make([]Port, len(n.Interfaces)+1)}
	for i := range n.Interfaces {
		l := lineOf(t, &n.Interfaces[i])
		c.Ports[i].Rate, c.Ports[i].MaxFrame = cmp.Or(l.Rate, plainRate), l.MaxFrame
	}
	host := &c.Ports[len(n.Interfaces)]
	host.Rate, host.MaxFrame = maxSize, maxBytes
	for k := range host.Classes {
		host.Classes[k].Limit = receiveBuffer
	}
	for i := range c.Ports {
		p := &c.Ports[i]
		for k := range p.Classes {
			if k < controlClass {
				p.Classes[k].Weight = 1
			}
		}
		if p == host || n.Adapter.PFC == nil {
			continue
		}
		for _, k := range *n.Adapter.PFC {
			p.Classes[k].Lossless, p.Classes[k].XOFF = true, receiveBuffer/2
			p.Classes[k].Headroom = NeededHeadroom(t, &n.Interfaces[i])
			host.Classes[k].Limit = 0 // its line pauses instead
		}
	}
	return c, c.Validate()
}
