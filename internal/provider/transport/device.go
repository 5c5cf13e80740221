// Package transport moves packets between the state machines of queue pairs and a carrier, for
// whatever object model the queue pairs are of: NDKPI's (package provider) or verbs. It gives them
// their numbers, hands arriving packets to them, runs their timers, shares out what may be in
// flight, and knows what they find out together about the paths to their peers.
//
// It decides nothing about requests, memory or completions: that is the state machine's (package rc)
// and the model's. Connection management is not here either: its datagrams are handed on.
//
// Start reading at Device, then Channel, which is a queue pair of a reliable connection.
package transport

import (
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/ndklab/ndklab/internal/provider/congestion"
	"github.com/ndklab/ndklab/internal/provider/fault"
	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/roce/mad"
	"github.com/ndklab/ndklab/provider/clock"
)

// A Carrier has those methods of provider.Carrier that the transport calls.
type Carrier interface {
	Send(flow roce.Flow, packets []roce.Packet) error
	SourcePort(local netip.Addr, hash uint32) uint16
}

// Traffic counts what queue pairs sent and received, in bytes from the Ethernet header to the ICRC and
// in packets. The counters may be shared with other processes.
type Traffic struct{ InOctets, OutOctets, InFrames, OutFrames *atomic.Uint64 }

// A Config says how a Device is started.
type Config struct {
	Carrier Carrier
	Clock   clock.Clock
	Rand    *rand.Rand
	Share   uint32 // of queue pair numbers, that this process has
	// Credit bounds the bytes that all queue pairs together have in flight beyond what their paths
	// hold: it is the receive buffer that was granted.
	Credit  int
	Traffic Traffic
	// Gather has short requests wait for others, while some are in flight: the Carrier takes many packets for little more than
	// the price of one.
	Gather bool
	// Congestion says how fast queue pairs send; the zero value leaves it to their windows.
	Congestion congestion.Config
	// LineRate returns the present rate of the line at a local address, in bits per second; 0: it is unknown.
	LineRate func(local netip.Addr) uint64
	// Pause returns the pause of packets of a DSCP from a local address; nil where nobody pauses them. It may be nil.
	Pause func(local netip.Addr, dscp uint8) Pause
	// Datagrams takes the management datagrams, which are lent.
	Datagrams func(packets []roce.Received)
}

// A Device has what the queue pairs of an adapter share.
type Device struct {
	Config
	Delivery Delivery
	// Fetch has packets be copies of memory that is not this process's, until done is called: the first there of
	// them, behind which is one whose memory is not there any more. All are lost if those whose memory it is are gone:
	// this process is about to end. nil: all memory is this process's. It is set before there are queue pairs.
	Fetch func(packets []roce.Packet) (done func(), there int, lost bool)

	table  table
	groups groups
	credit creditPool

	polled atomic.Bool   // a consumer polls, and will call FlushPosts, for the channels in posts
	polls  atomic.Uint64 // calls of FlushPosts
	posts  postQueue
	paths  paths
	pacing pacing

	congestion congestionControl
	driven     clock.Clock   // the Clock, but that Advance runs its timers
	advance    func()        // driven's
	looks      atomic.Uint32 // calls of Advance
	timers     clock.Clock   // of channels: driven, or one that is more precise
	line       Line          // the Carrier, if it is one and congestion control is not the window's
	linesMu    sync.Mutex    // guards lines, but not the elements
	lines      map[lineKey]*lineQueue

	// UnknownQP, Misdirected and CNPs count packets: for numbers that are not in use, not from the
	// queue pair's peer, and congestion notifications.
	UnknownQP, Misdirected, CNPs atomic.Uint64

	// retiring guards retired, and makes a queue pair's step from the table to retired
	// one step for those who sum up.
	retiring sync.Mutex
	retired  rc.Counters // sum over the channels that are no more
}

// New starts a device.
func New(cfg Config) *Device {
	d := &Device{Config: cfg, paths: paths{to: map[netip.Addr]*path{}}, lines: map[lineKey]*lineQueue{}}
	d.table.init(cfg.Share, cfg.Rand)
	d.credit.init(cfg.Credit, cfg.Clock.Go)
	d.pacing.init(cfg.Credit, d.table.next)
	d.driven, d.advance = clock.Driven(cfg.Clock)
	d.congestion.Config, d.timers = cfg.Congestion, d.driven
	if cfg.Congestion.Algorithm != congestion.Window {
		d.timers = clock.Precise(cfg.Clock) // a packet that is to leave later must not leave much later
	}
	if line, ok := cfg.Carrier.(Line); ok && cfg.Congestion.Algorithm != congestion.Window {
		d.line = line
	}
	return d
}

// advanceInterval is every how many polls Advance looks at the clock.
const advanceInterval = 8

// Advance runs the timers that are due, in every advanceInterval-th call. A consumer that polls calls it with each poll, so that no
// thread need be woken for them. No lock of a channel is held. A Carrier's goroutine does not call it: it sleeps and is woken all
// the time, and where others want the processors, too, the kernel then leaves both ends on one of them unless other threads are
// woken meanwhile, such as those for timers.
func (d *Device) Advance() {
	if d.looks.Add(1)%advanceInterval == 0 {
		d.advance()
	}
}

// Receive gives packets to their queue pairs, runs of one queue pair's together. They are lent.
func (d *Device) Receive(packets []roce.Received, how Mode) {
	d.credit.beginReceiving()
	defer d.credit.endReceiving()
	for len(packets) > 0 {
		number := packets[0].Header.DestQPN
		n := 1
		for n < len(packets) && packets[n].Header.DestQPN == number {
			n++
		}
		run := packets[:n]
		packets = packets[n:]
		if number&shareMask == mad.QPN {
			d.receiveDatagrams(number, run)
			continue
		}
		if number == multicastQPN {
			d.receiveMulticast(run, how)
			continue
		}
		p := d.table.get(number)
		if p == nil {
			d.UnknownQP.Add(uint64(n))
			continue
		}
		p.Owner.Receive(run, how)
	}
}

// send hands packets to the carrier, and reports how many: those before one that cannot be fetched. If the memory vanishes
// meanwhile that fragile ones are made of, they are lost as on a wire: the state machine finds out when it makes them
// again, or nobody waits for them.
func (d *Device) send(flow roce.Flow, packets []roce.Packet, fragile bool) (sent int, err error) {
	sent = len(packets)
	if !fragile {
		return sent, d.Carrier.Send(flow, packets)
	}
	if d.Fetch != nil {
		done, there, lost := d.Fetch(packets)
		defer done()
		if lost {
			return sent, nil
		}
		if sent = there; sent == 0 {
			return 0, nil
		}
	}
	var whole bool
	defer fault.Catch(fault.Expect(), &whole)
	return sent, d.Carrier.Send(flow, packets[:sent])
}

// Counters sums up what the channels have counted since the device was started.
func (d *Device) Counters() rc.Counters {
	d.retiring.Lock()
	defer d.retiring.Unlock()
	sum := d.retired
	d.Each(func(p *Pair) {
		if c, ok := p.Owner.(interface{ Counters() rc.Counters }); ok {
			sum = sum.Plus(c.Counters())
		}
	})
	return sum
}

// frameOctets returns the length of the Ethernet frame around a packet: headers, ICRC
// and padding, without preamble and frame check sequence, which belong to layer
// 1 and to the hardware.
func frameOctets(flow *roce.Flow, opcode roce.Opcode, payload int) int {
	const ethernet, ipv4, ipv6, udp, icrc = 14, 20, 40, 8, 4
	ip := ipv4
	if flow.Local.Is6() {
		ip = ipv6
	}
	return ethernet + ip + udp + opcode.HeaderLen() + (payload+3)&^3 + icrc
}
