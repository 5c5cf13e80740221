package workload

import (
	"bytes"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
)

// A poller is a simulated carrier that consumers can receive from themselves. From the first
// Poll on it leaves what arrives to the next, until Resume or for pollerTick.
type poller struct {
	provider.Carrier
	clock    clock.Clock
	receiver provider.Deferrer
	arrived  []roce.Received
	polled   bool
	timer    clock.Timer // ends polled
}

// pollerTick is the longest that a carrier on sockets waits for somebody who does not poll
// any more.
const pollerTick = 10 * time.Millisecond

func newPoller(cfg *provider.Config) *poller {
	p := &poller{Carrier: cfg.Carrier, clock: cfg.Clock}
	p.timer = p.clock.AfterFunc(0, p.Resume)
	return p
}

// Listen implements provider.Carrier.
func (p *poller) Listen(r provider.Receiver) {
	p.receiver = r.(provider.Deferrer)
	p.Carrier.Listen(p)
}

// Receive implements provider.Receiver.
func (p *poller) Receive(packets []roce.Received) {
	for _, r := range packets {
		r.Payload = bytes.Clone(r.Payload)
		p.arrived = append(p.arrived, r)
	}
	if !p.polled {
		p.give(p.receiver)
		p.deliver()
	}
}

// give hands over what has arrived, and reports whether there was something.
func (p *poller) give(to provider.Receiver) bool {
	packets := p.arrived
	p.arrived = nil
	if len(packets) > 0 {
		to.Receive(packets)
	}
	return len(packets) > 0
}

// deliver does what was put off, as long as there is something.
func (p *poller) deliver() {
	if p.receiver.Delivered() {
		p.clock.AfterFunc(time.Microsecond, p.deliver)
	}
}

// PollBeside implements provider.Poller.
func (p *poller) PollBeside(r provider.Receiver) (arrived, alone bool) { return p.Poll(r), false }

// CatchUp implements provider.Poller.
func (p *poller) CatchUp(r provider.Receiver) { p.give(r) }

// Poll implements provider.Poller.
func (p *poller) Poll(r provider.Receiver) bool {
	p.polled = true
	p.timer.Reset(pollerTick)
	return p.give(r)
}

// Resume implements provider.Poller.
func (p *poller) Resume() {
	p.polled = false
	if p.receiver != nil {
		p.Receive(nil)
	}
}
