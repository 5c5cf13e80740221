package transport

import (
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/provider/clock"
)

var group = netip.MustParseAddr("239.1.2.3")

// A joiner is a carrier whose Leave waits for a packet to the group that is being received.
type joiner struct {
	Carrier
	device *Device
	joined int
}

func (j *joiner) Addresses() []netip.Addr { return nil }

func (j *joiner) Join(netip.Addr) error {
	j.joined++
	return nil
}

func (j *joiner) Leave(netip.Addr) {
	j.joined--
	received := make(chan struct{})
	go func() {
		defer close(received)
		j.receive()
	}()
	<-received
}

func (j *joiner) receive() {
	j.device.Receive([]roce.Received{{
		Flow: roce.Flow{Local: group}, Header: roce.Header{DestQPN: multicastQPN},
	}}, AtOnce)
}

type counter int

func (c *counter) Receive(packets []roce.Received, _ Mode) { *c += counter(len(packets)) }

// Packets to a group reach who is attached to it. The last who is detached has the carrier leave the group, while
// another packet may be received.
func TestGroups(t *testing.T) {
	j := &joiner{}
	var none atomic.Uint64
	j.device = New(Config{
		Carrier: j, Clock: clock.NewVirtual(), Rand: rand.New(rand.NewPCG(1, 1)),
		Traffic: Traffic{&none, &none, &none, &none},
	})
	var counts [2]counter
	pairs := [2]Pair{{Owner: &counts[0]}, {Owner: &counts[1]}}
	for i := range pairs {
		j.device.Add(&pairs[i])
		if err := j.device.Attach(group, &pairs[i]); err != nil {
			t.Fatal(err)
		}
	}
	j.receive()
	j.device.Detach(group, &pairs[0])
	j.receive()
	if j.joined != 1 || counts != [2]counter{1, 2} {
		t.Errorf("joined %d times, %v received", j.joined, counts)
	}
	j.device.Detach(group, &pairs[1])
	if j.joined != 0 || counts != [2]counter{1, 2} || j.device.UnknownQP.Load() != 1 {
		t.Errorf("at the end: joined %d times, %v received", j.joined, counts)
	}
}
