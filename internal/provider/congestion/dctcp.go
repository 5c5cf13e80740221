package congestion

import (
	"fmt"
	"time"
)

// A DCTCP has the parameters of DCTCP (SIGCOMM'10, RFC 8257).
type DCTCP struct {
	G   float64       // weight of a new sample in alpha, 0 to 1: 1/16 in both
	RTT time.Duration // whose bandwidth-delay product the window begins with; 0: the first that the queue pair measures
}

// DefaultDCTCP returns the parameters of the paper and the RFC.
func DefaultDCTCP() DCTCP { return DCTCP{G: 1.0 / 16} }

// Validate returns an error that names the first parameter that makes no sense, and its range.
func (p *DCTCP) Validate() error {
	if !within(p.G, 0, 1) {
		return fmt.Errorf("congestion: g is %v, want a weight of a new sample from 0 to 1", p.G)
	}
	return validateRTT(p.RTT)
}

// A dctcp is the sender's half of DCTCP for one queue pair. Its window grows by a packet per window of
// data that is acknowledged. After each window of data, of which the share F was marked, alpha becomes
// (1-g) alpha + g F (RFC 8257, 3.3). The first mark of a window of data cuts the window by alpha/2, and
// the first packet that is lost cuts it by a half (3.3, 3.5).
//
// Acknowledgements of RoCE say nothing of marks, so F is how many CNPs have come, for how many
// packets have been acknowledged. It is too small where the receiver does not send a CNP for each
// marked packet, or CNPs are lost.
type dctcp struct {
	unlimited
	product
	g float64

	window  float64 // bytes
	alpha   float64 // 1 at first (RFC 8257, 3.3)
	started bool    // window has its first value

	acknowledged, marked int64 // bytes of this window of data
	left                 int64 // bytes of it that are not acknowledged
	hold                 int64 // bytes to be acknowledged until the next cut: what was in flight at the last one
}

// NewDCTCP returns the Control of a queue pair with DCTCP on a line of so many bits per second; 0: of
// 10 Gb/s. A full packet has so many bytes on the wire.
func NewDCTCP(p *DCTCP, lineRate float64, packet int) Control {
	return newDCTCP(p, lineRate, packet)
}

func newDCTCP(p *DCTCP, lineRate float64, packet int) *dctcp {
	d := &dctcp{product: newProduct(p.RTT, lineRate, packet), g: p.G, alpha: 1, started: p.RTT > 0}
	d.window = float64(d.bytes())
	return d
}

// Notified implements Control.
func (d *dctcp) Notified(time.Duration) {
	d.marked += d.packet
	d.cut(d.alpha)
}

// Lost implements Control.
func (d *dctcp) Lost(time.Duration) bool { return d.cut(1) }

// cut lowers the window by half a share of it, but not twice for one window of data (RFC 3168, 6.1.2), and reports whether
// it does.
func (d *dctcp) cut(share float64) bool {
	if d.hold > 0 {
		return false
	}
	d.started = true
	d.hold = int64(d.window)
	d.window = max(d.window*(1-share/2), float64(d.packet))
	return true
}

// Acknowledged implements Control.
func (d *dctcp) Acknowledged(_ time.Duration, a Ack) {
	if a.RTT > 0 && !d.started {
		d.measure(a.RTT)
		d.started, d.window = true, float64(d.bytes())
	}
	if a.Bytes == 0 {
		return
	}
	d.grow(a)
	d.hold = max(0, d.hold-a.Bytes)
	d.acknowledged += a.Bytes
	if d.left -= a.Bytes; d.left <= 0 {
		d.updateAlpha()
		d.left = a.InFlight
	}
}

// grow raises the window, but not before a cut has taken effect, and not if less than half of it is
// used: that would rise for ever (RFC 7661).
func (d *dctcp) grow(a Ack) {
	if d.hold == 0 && 2*float64(a.InFlight+a.Bytes) >= d.window {
		d.window += float64(d.packet) * float64(a.Bytes) / d.window
	}
}

// updateAlpha ends a window of data.
func (d *dctcp) updateAlpha() {
	marked := min(float64(d.marked)/float64(d.acknowledged), 1)
	d.alpha = (1-d.g)*d.alpha + d.g*marked
	d.acknowledged, d.marked = 0, 0
}

// Window implements Control.
func (d *dctcp) Window() int64 { return int64(d.window) }
