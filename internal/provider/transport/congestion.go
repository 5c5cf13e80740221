package transport

import (
	"cmp"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ndklab/ndklab/internal/provider/congestion"
	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/roce"
)

// This file drives package congestion for the queue pairs of reliable connections.

// layer1 is the bytes that a frame has on the wire beside itself: preamble, frame check sequence
// and the gap behind it (IEEE 802.3).
const layer1 = 8 + 4 + 12

// A congestionControl has the state of a device.
type congestionControl struct {
	congestion.Config

	mu        sync.Mutex                          // guards notifiers
	notifiers map[netip.Addr]*congestion.Notifier // by the peer's address, or of the zero Addr for all

	// Of mlx5's names: CE marks seen and CNPs sent as the notification point (np), CNPs that the reaction
	// point (rp) heeded, and that were for queue pairs without one; and how often it took what was lost for a CNP.
	marked, sent, handled, ignored, restarts atomic.Uint64
}

// CongestionCounters returns what bears on congestion control under mlx5's names, where channels have counted sum; nil if
// the device has none.
func (d *Device) CongestionCounters(sum *rc.Counters) map[string]uint64 {
	g := &d.congestion
	if g.Algorithm == congestion.Window {
		return nil
	}
	counters := map[string]uint64{
		"np_ecn_marked_roce_packets": g.marked.Load(), "np_cnp_sent": g.sent.Load(),
		"rp_cnp_handled": g.handled.Load(), "rp_cnp_ignored": g.ignored.Load(),
		"packet_seq_err": sum.NAKsReceived, "local_ack_timeout_err": sum.Timeouts,
	}
	if g.restartsSlowly() {
		counters["roce_slow_restart_cnps"] = g.restarts.Load()
	}
	return counters
}

// pace gives a connection its Pacer, on a line of so many bits per second; 0: unknown. Where the line says when there is room on it, nothing else bounds what is in flight;
// where packets go to the kernel at once, credit protects the receive buffers (unless the configuration says otherwise), and the queue pair keeps to the rate of the line
// by itself, unless it would be woken too late for that: what it sends faster would fill the line's queue, where it is marked.
func (g *congestionControl) pace(c *rc.Connection, local netip.Addr, line float64, onLine bool) {
	if g.Algorithm == congestion.Window {
		return
	}
	flow := roce.Flow{Local: local}
	packet := layer1 + frameOctets(&flow, roce.WriteMiddle, c.MTU)
	control := g.New(line, packet)
	if g.restartsSlowly() {
		control = countingControl{control, &g.restarts}
	}
	c.Pacer = congestion.NewPacer(control, line, g.Burst, layer1+frameOctets(&flow, 0, 0)-roce.Opcode(0).HeaderLen())
	c.Pacer.Unbounded, c.Pacer.Packet = onLine || g.Unbounded, int64(packet)
	c.Pacer.SpacesAll = !onLine && line > 0 && float64(g.Burst)*8/line >= g.WakeTime.Seconds()
}

// restartsSlowly reports whether what is lost slows a sender down.
func (g *congestionControl) restartsSlowly() bool {
	return g.Algorithm == congestion.WithDCQCN && g.DCQCN.SlowRestart
}

// A countingControl counts what is lost that slows its queue pair down.
type countingControl struct {
	congestion.Control
	restarts *atomic.Uint64
}

// Lost implements congestion.Control.
func (c countingControl) Lost(now time.Duration) bool {
	slows := c.Control.Lost(now)
	if slows {
		c.restarts.Add(1)
	}
	return slows
}

// Observe implements congestion.Observable; the algorithm that restarts slowly is one.
func (c countingControl) Observe(now time.Duration) (rate, target float64) {
	return c.Control.(congestion.Observable).Observe(now)
}

// classOf returns the traffic class of a packet of a reliable connection, for which its consumer may have asked for one.
func (g *congestionControl) classOf(requested uint8, op roce.Opcode) uint8 {
	class := cmp.Or(requested, g.DSCP<<2)
	if g.HearsMarks() && !op.OnlyAcknowledges() {
		class |= roce.ECT0
	}
	return class
}

// isCNPDue reports whether a packet that arrived marked for a channel, whose lock is held, calls for a CNP.
func (g *congestionControl) isCNPDue(now time.Duration, c *Channel) bool {
	if g.CNP.Per == congestion.PerQP {
		return c.notifier.Marked(now, &g.CNP)
	}
	var key netip.Addr
	if g.CNP.Per == congestion.PerAddress {
		key = c.flow.Remote
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.notifiers[key]
	if n == nil {
		n = new(congestion.Notifier)
		if g.notifiers == nil {
			g.notifiers = map[netip.Addr]*congestion.Notifier{}
		}
		g.notifiers[key] = n
	}
	return n.Marked(now, &g.CNP)
}

// handleMark takes note of a packet that arrived with CE, and sends a CNP if it calls for one (roce.md 14.2). Of a response
// none goes out where this channel is who bounds it. The channel's lock is held.
func (c *Channel) handleMark(now time.Duration, op roce.Opcode) {
	d := c.device
	g := &d.congestion
	g.marked.Add(1)
	if g.BoundsReads() && op.IsResponse() {
		c.QP.Notified(now)
		return
	}
	if !g.HearsMarks() || !g.isCNPDue(now, c) {
		return
	}
	flow, to := c.flow, c.remoteQPN
	if g.CNP.Delay == 0 {
		d.sendCNP(flow, to)
		return
	}
	d.timers.AfterFunc(g.CNP.Delay, func() { d.sendCNP(flow, to) })
}

func (d *Device) sendCNP(flow roce.Flow, to uint32) {
	d.congestion.sent.Add(1)
	packet := [1]roce.Packet{{
		Header: roce.Header{Opcode: roce.CNP, PKey: roce.DefaultPKey, BECN: true, DestQPN: to},
		Class:  d.congestion.CNP.DSCP << 2,
	}}
	// The carrier fails only when it is closed, and then nobody waits.
	_ = d.Carrier.Send(flow, packet[:])
}

// handleCNP takes a CNP. The channel's lock is held.
func (c *Channel) handleCNP(now time.Duration) {
	d := c.device
	d.CNPs.Add(1)
	c.cnps++
	if d.congestion.HearsMarks() && c.QP.Notified(now) {
		d.congestion.handled.Add(1)
	} else {
		d.congestion.ignored.Add(1)
	}
}
