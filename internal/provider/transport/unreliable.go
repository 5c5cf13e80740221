package transport

import (
	"net/netip"
	"sync"

	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/roce"
)

// A Machine is the state machine of a queue pair that is not told what arrives: of an unreliable connection or of
// datagrams.
type Machine interface {
	// Handle takes a packet that arrived for the queue pair, which is lent. It reports whether the packet is of
	// the queue pair's class and from where it may come.
	Handle(p *roce.Received) bool
	// Destination returns the address and the queue pair that the next packet goes to, without making it; false if
	// there is none.
	Destination() (remote netip.Addr, qpn uint32, ok bool)
	// Next makes the next packet in p, with its traffic class, and says by which flow it goes; false if there is none.
	Next(p *roce.Packet) (roce.Flow, bool)
	// Settle says that nobody reads memory any more that packets were made of or that has been written to, and
	// that there may be completions.
	Settle()
}

// An Unreliable is a queue pair of a Machine: what drives it. The lock guards the machine.
type Unreliable struct {
	Pair
	sync.Mutex

	device   *Device
	machine  Machine
	sent     uint64 // packets, as the next
	received uint64
	delivery *Delivery  // that the packets are part of which are being handled; nil for none
	paced    *pacedPath // where the newest packet went; nil before there is one
	waiting  bool       // among those of a pacedPath
}

// Init makes u a queue pair of the device, which has no number before Add.
func (u *Unreliable) Init(d *Device, machine Machine) {
	u.device, u.machine = d, machine
	u.Owner = u
}

// Delivery returns the one that the packets are part of that are being handled; nil for none.
func (u *Unreliable) Delivery() *Delivery { return u.delivery }

// Packets counts those that the queue pair has sent and received.
func (u *Unreliable) Packets() (sent, received uint64) {
	u.Lock()
	defer u.Unlock()
	return u.sent, u.received
}

// Receive implements Owner.
func (u *Unreliable) Receive(packets []roce.Received, how Mode) {
	u.Lock()
	defer u.Unlock()
	d := u.device
	if how == Deferred {
		u.delivery = &d.Delivery
		defer func() { u.delivery = nil }()
	}
	frames, octets := 0, 0
	for i := range packets {
		p := &packets[i]
		if !p.Header.InDefaultPartition() || !u.machine.Handle(p) {
			d.Misdirected.Add(1)
			continue
		}
		frames++
		octets += frameOctets(&p.Flow, p.Header.Opcode, len(p.Payload))
	}
	u.received += uint64(frames)
	d.Traffic.InOctets.Add(uint64(octets))
	d.Traffic.InFrames.Add(uint64(frames))
	u.machine.Settle()
}

// Progress sends what there is to be sent, runs of one flow together, until there is no room at its destination.
func (u *Unreliable) Progress() {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	var flow roce.Flow
	var path *pacedPath
	n := 0
	for {
		var next roce.Flow
		to, ok := u.nextPath()
		if ok {
			next, ok = u.machine.Next(&s.batch[n])
		}
		if n > 0 && (!ok || next != flow || to != path) {
			u.send(path, flow, s.batch[:n])
			s.batch[0], s.batch[n] = s.batch[n], s.batch[0]
			n = 0
		}
		if !ok {
			break
		}
		flow, path = next, to
		if path != nil {
			path.sent.Add(uint64(s.batch[n].PayloadLen() + rc.PacketOverhead))
		}
		if n++; n == batchSize-1 || path != nil && path.isDue() {
			u.send(path, flow, s.batch[:n])
			n = 0
		}
	}
	u.machine.Settle()
}

// nextPath returns where the next packet is paced, nil for nowhere; not ok if there is none, or it has to wait, and then the
// queue pair will be resumed.
func (u *Unreliable) nextPath() (_ *pacedPath, ok bool) {
	remote, qpn, ok := u.machine.Destination()
	if !ok || remote.IsMulticast() {
		return nil, ok
	}
	if to := (pacedKey{remote, qpn >> ShareShift}); u.paced == nil || u.paced.key != to {
		u.paced = u.device.pacedPathTo(to)
	}
	if u.paced.hasRoom() || u.paced.admits(u) {
		return u.paced, true
	}
	return nil, false
}

// resume resumes a queue pair that waited.
func (u *Unreliable) resume() {
	u.Lock()
	defer u.Unlock()
	u.waiting = false
	u.Progress()
}

func (u *Unreliable) send(path *pacedPath, flow roce.Flow, packets []roce.Packet) {
	octets := 0
	for i := range packets {
		octets += frameOctets(&flow, packets[i].Header.Opcode, packets[i].PayloadLen())
	}
	u.sent += uint64(len(packets))
	u.device.Traffic.OutOctets.Add(uint64(octets))
	u.device.Traffic.OutFrames.Add(uint64(len(packets)))
	// The carrier fails only when it is closed, and then packets are lost as on a wire.
	_, _ = u.device.send(flow, packets, true)
	if path != nil {
		path.markIfDue(flow)
	}
}
