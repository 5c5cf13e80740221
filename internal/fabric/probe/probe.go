// Package probe measures what a link does to packets: it sends numbered ones from
// the interface at one end to that at the other, and notes when the kernel sent
// each and when it received it.
//
// Probes are IPv4 and UDP, addressed to the group of the nearest bridge, so that
// they reach the other end of the link and nothing beyond: hosts and routers drop
// them behind the packet socket that sees them, and no bridge forwards them. That
// needs no addresses, and nothing that runs in a node. All timestamps are the
// kernel's, so that they do not depend on when a process gets a processor. Where a
// link is between two hosts, one has Port.Send and the other Port.See, and who puts
// the flight together knows how their clocks differ.
//
// The package does not work out anew what a link should have done: the model
// (package impair) decides on the very same packets, many times with other seeds,
// and the most and the least that it does bound what is expected (expect.go).
//
// The package knows no labs. Start reading at Fly, then at Expect.
package probe

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/frame"
	"golang.org/x/sys/unix"
)

// An End is an interface at one end of a link.
type End struct {
	Interface string
	// Network opens its network namespace; nil: it is in the caller's.
	Network func() (*os.File, error)
}

// A Port is an end that is open: to send probes, and to see what crosses the interface in either direction, but nothing that it
// sent itself. It is not for use by several goroutines at once.
type Port struct {
	send, see *os.File
}

// seeBuffer is the size that is requested of the buffer for packets that wait to
// be seen, in bytes. Without privilege the kernel grants less.
const seeBuffer = 32 << 20

// Open opens an end of a link. Any process that may make network namespaces may do that.
func (e End) Open() (p *Port, err error) {
	opened := make(chan error)
	go func() {
		var err error
		p, err = e.open()
		opened <- err
	}()
	if err := <-opened; err != nil {
		return nil, fmt.Errorf("interface %s: %w", e.Interface, err)
	}
	return p, nil
}

// open is for a goroutine that ends with it: its thread may be left in the
// namespace, and ends, too.
func (e End) open() (*Port, error) {
	if e.Network != nil {
		runtime.LockOSThread() // for good
		network, err := e.Network()
		if err != nil {
			return nil, err
		}
		defer network.Close()
		if err := unix.Setns(int(network.Fd()), unix.CLONE_NEWNET); err != nil {
			return nil, fmt.Errorf("network namespace: %w", err)
		}
	}
	see, err := frame.Open(e.Interface, true, seeBuffer)
	if err != nil {
		return nil, err
	}
	send, err := frame.Open(e.Interface, false, 0)
	if err != nil {
		unix.Close(see)
		return nil, err
	}
	return &Port{send: os.NewFile(uintptr(send), "send"), see: os.NewFile(uintptr(see), "see")}, nil
}

// Close closes the end.
func (p *Port) Close() {
	p.send.Close()
	p.see.Close()
}

// Options say what to send.
type Options struct {
	Count     int // of probes
	Size      int // of each, bytes from the Ethernet header on: MinSize to the MTU with that header
	PerSecond int // 0: as many as go
}

// A Flight is a series of probes in one direction.
type Flight struct {
	Size     int             // of each probe, bytes from the Ethernet header on
	Sent     []time.Duration // when the kernel sent each; 0: it did not
	SentLate []bool          // of each, Sent is when it was noticed: the kernel did not stamp it; nil: it stamped all
	Arrivals []Arrival       // in their order
	Missed   uint64          // frames that the sockets had no room for, which may be probes
	Now      time.Duration   // when all were sent, of the clock of Sent
	// Unsure is by how much delays may be wrong, either way, because two clocks have measured them; 0: it was one.
	Unsure time.Duration
}

// An Arrival is a probe's at the far end.
type Arrival struct {
	Probe     int           // its number, from 0; -1 if it cannot be told, so much was changed
	At        time.Duration // when the kernel received it
	Late      bool          // the kernel did not stamp it: At is the time at which it was noticed
	Corrupted bool          // bits are not as they were sent
	Marked    bool          // with Congestion Experienced
}

// NewNumber returns a number for a flight: so far from others that a few bits do not make one of the other.
func NewNumber() uint32 { return rand.Uint32() }

// Fly sends probes from an end, 0 or 1, to the other. All being sent, it has until say how long to wait for those that are on
// their way; if all are there, it does not wait.
func Fly(ctx context.Context, ends [2]End, from int, o Options, until func(*Flight) time.Duration) (*Flight, error) {
	var ports [2]*Port
	for i, e := range ends {
		var err error
		if ports[i], err = e.Open(); err != nil {
			return nil, err
		}
		defer ports[i].Close()
	}
	number := NewNumber()
	sight := ports[1-from].See(number, o)
	f, err := ports[from].Send(ctx, number, o)
	if err != nil {
		sight.Stop()
		return nil, err
	}
	seen, err := sight.Finish(ctx, until(f))
	if err != nil {
		return nil, err
	}
	f.Arrivals, f.Missed = seen.Arrivals, f.Missed+seen.Missed
	return f, nil
}

// Send sends the probes of a flight. The flight that it returns has no arrivals.
func (p *Port) Send(ctx context.Context, number uint32, o Options) (*Flight, error) {
	f := &Flight{Size: o.Size, Sent: make([]time.Duration, o.Count), SentLate: make([]bool, o.Count)}
	outgoing := p.See(number, o)
	err := p.sendAll(ctx, number, o)
	if err != nil {
		outgoing.Stop()
		return nil, err
	}
	// The probes that were sent have been seen by then, as the kernel sees
	// them while it sends.
	seen, err := outgoing.Finish(ctx, 0)
	if err != nil {
		return nil, err
	}
	for _, a := range seen.Arrivals {
		if a.Probe >= 0 {
			f.Sent[a.Probe], f.SentLate[a.Probe] = a.At, a.Late
		}
	}
	f.Missed, f.Now = seen.Missed, time.Duration(time.Now().UnixNano())
	return f, nil
}

// sendAll sends a flight's probes at their times; one that is behind is sent at
// once.
func (p *Port) sendAll(ctx context.Context, flight uint32, o Options) error {
	begin := time.Now()
	b := make([]byte, frame.HeaderLen+o.Size)
	for n := range o.Count {
		if o.PerSecond > 0 {
			due := begin.Add(time.Duration(n) * time.Second / time.Duration(o.PerSecond))
			if ahead := time.Until(due); ahead > 0 {
				timer := time.NewTimer(ahead)
				select {
				case <-timer.C:
				case <-ctx.Done():
					timer.Stop()
				}
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		compose(b[frame.HeaderLen:], flight, uint32(n))
		if _, err := p.send.Write(b); err != nil {
			return fmt.Errorf("send probe: %w", err)
		}
	}
	return nil
}
