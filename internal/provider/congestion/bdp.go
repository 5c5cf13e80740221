package congestion

import (
	"cmp"
	"fmt"
	"math"
	"time"
)

// A BDP has the parameter of BDP-FC, the flow control of IRN (SIGCOMM'18, 3.2): a queue pair has no
// more packets in flight than the path holds, which is the rate of the line times the base round
// trip. So the queues of N queue pairs into one port hold N times that, at most.
type BDP struct {
	RTT time.Duration // of the longest path, without queues; 0: the least mean that the queue pair measures
}

// Validate returns an error that names the parameter if it makes no sense, and its range.
func (p *BDP) Validate() error { return validateRTT(p.RTT) }

func validateRTT(rtt time.Duration) error {
	if rtt < 0 {
		return fmt.Errorf("congestion: rtt is %v, want 0, to measure it, or more", rtt)
	}
	return nil
}

// NewBDP returns the Control of a queue pair with BDP-FC on a line of so many bits per second; 0: of
// 10 Gb/s. A full packet has so many bytes on the wire.
func NewBDP(p *BDP, lineRate float64, packet int) Control {
	return &flowControl{product: newProduct(p.RTT, lineRate, packet)}
}

// A flowControl is the Control of BDP-FC.
type flowControl struct {
	unlimited
	product
}

// Acknowledged implements Control.
func (f *flowControl) Acknowledged(_ time.Duration, a Ack) { f.measure(a.RTT) }

// Window implements Control.
func (f *flowControl) Window() int64 { return f.bytes() }

// A product is the bandwidth-delay product of a path. A round trip that a topology gives stands; else
// it is the least mean of those of full packets, as a short one is on each wire for a shorter time. It
// is that of means, since hosts handle together what arrives within some microseconds: a packet that
// comes last is acknowledged sooner than most are.
type product struct {
	rate   float64 // of the line, in bits per second
	packet int64   // bytes
	rtt    time.Duration
	mean   time.Duration // of late, smoothed as in RFC 6298; 0: nothing was measured
	given  bool
}

// firstPackets may be in flight while the round trip is not known: they make no queue.
const firstPackets = 4

func newProduct(rtt time.Duration, lineRate float64, packet int) product {
	return product{rate: cmp.Or(lineRate, unknownLineRate), packet: int64(packet), rtt: rtt, given: rtt > 0}
}

// measure takes a round trip; 0 is none.
func (b *product) measure(rtt time.Duration) {
	switch {
	case b.given || rtt == 0:
	case b.mean == 0:
		b.mean, b.rtt = rtt, rtt
	default:
		b.mean += (rtt - b.mean) / 8
		b.rtt = min(b.rtt, b.mean)
	}
}

// bytes returns the product in whole packets, rounded up: with less the line would be idle at times.
func (b *product) bytes() int64 {
	if b.rtt == 0 {
		return firstPackets * b.packet
	}
	return max(1, int64(math.Ceil(b.rate/8*b.rtt.Seconds()/float64(b.packet)))) * b.packet
}
