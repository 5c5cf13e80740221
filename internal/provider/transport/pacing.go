package transport

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ndklab/ndklab/internal/provider/pace"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/roce/mad"
	"github.com/ndklab/ndklab/provider/clock"
)

// This file drives package pace for the queue pairs whose packets nobody acknowledges.

// pacing has the state of a device.
type pacing struct {
	mu     sync.Mutex // guards what follows, but not the elements
	buffer *pace.Buffer
	to     map[pacedKey]*pacedPath
	nextID uint64
}

// init shares out half of a receive buffer of so many bytes: Linux may count up to a quarter of it as taken that is free
// again (udp_rmem_release in net/ipv4/udp.c), and there is to be room for who has just begun. IDs begin with a number
// that is drawn for each device.
func (p *pacing) init(receiveBuffer int, drawn uint32) {
	p.buffer, p.to, p.nextID = pace.NewBuffer(receiveBuffer/2), map[pacedKey]*pacedPath{}, uint64(drawn)<<32
}

// A pacedKey is a receive buffer: each process that shares a device has its own.
type pacedKey struct {
	remote netip.Addr
	share  uint32
}

// A pacedPath is the path to one receive buffer, with the queue pairs that wait for room there.
type pacedPath struct {
	device *Device
	key    pacedKey

	sent       atomic.Uint64 // bytes
	limit, due atomic.Uint64 // path's, to be read without the lock

	mu      sync.Mutex // guards what follows; locked after a queue pair's
	path    *pace.Path
	flow    roce.Flow // of the newest Mark
	waiting []*Unreliable
	timer   clock.Timer
	timerAt time.Duration // when the timer will run; 0: it is not pending
}

// pacedPathTo returns the path to a receive buffer. There is one for each that the device has ever sent to.
func (d *Device) pacedPathTo(key pacedKey) *pacedPath {
	d.pacing.mu.Lock()
	defer d.pacing.mu.Unlock()
	p := d.pacing.to[key]
	if p == nil {
		p = &pacedPath{device: d, key: key, path: pace.NewPath(d.pacing.nextID)}
		d.pacing.nextID++
		p.publish()
		d.pacing.to[key] = p
	}
	return p
}

// publish follows whatever may have changed the path. The lock is held.
func (p *pacedPath) publish() {
	p.limit.Store(p.path.Limit())
	p.due.Store(p.path.NextMark())
}

// hasRoom reports whether a packet may be sent.
func (p *pacedPath) hasRoom() bool { return p.sent.Load() < p.limit.Load() }

// admits has a queue pair, whose lock is held, be resumed when a packet may be sent, unless it may now.
func (p *pacedPath) admits(u *Unreliable) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hasRoom() {
		return true
	}
	if !u.waiting {
		u.waiting = true
		p.waiting = append(p.waiting, u)
		p.setTimer(p.device.Clock.Now())
	}
	return false
}

// isDue reports whether it is time for a Mark.
func (p *pacedPath) isDue() bool { return p.sent.Load() >= p.due.Load() }

// markIfDue sends a Mark behind what has been sent, if it is time.
func (p *pacedPath) markIfDue(flow roce.Flow) {
	if !p.isDue() {
		return
	}
	p.mu.Lock()
	p.flow = flow
	m := p.mark(p.device.Clock.Now())
	p.mu.Unlock()
	p.send(flow, &m)
}

// mark returns the Mark that is to be sent now. The lock is held.
func (p *pacedPath) mark(now time.Duration) mad.Mark {
	m := p.path.Mark(now, p.sent.Load())
	p.publish()
	return m
}

// send sends a Mark, behind the packets of a flow.
func (p *pacedPath) send(flow roce.Flow, m *mad.Mark) {
	d := p.device
	d.sendDatagram(flow, p.key.share<<ShareShift|mad.QPN, d.table.first&^shareMask|mad.QPN, m.Append(nil))
}

// setTimer has the timer run at the path's deadline or earlier, if somebody waits. The lock is held.
func (p *pacedPath) setTimer(now time.Duration) {
	if len(p.waiting) == 0 {
		return
	}
	p.path.StartWaiting(now)
	deadline := p.path.Deadline()
	if p.timerAt != 0 && p.timerAt <= deadline {
		return
	}
	p.timerAt = max(deadline, 1)
	if p.timer == nil {
		p.timer = p.device.driven.AfterFunc(deadline-now, p.timeout)
	} else {
		p.timer.Reset(deadline - now)
	}
}

func (p *pacedPath) timeout() {
	p.mu.Lock()
	p.timerAt = 0
	now := p.device.Clock.Now()
	var m mad.Mark
	ask := false
	if len(p.waiting) > 0 && p.path.Deadline() <= now {
		if ask = p.path.HandleTimeout(now); ask {
			m = p.mark(now)
		}
		p.publish()
	}
	flow := p.flow
	p.mu.Unlock()
	if ask {
		p.send(flow, &m)
	}
	p.resume(now)
}

// answer takes the peer's Answer. No lock of a queue pair is held.
func (p *pacedPath) answer(now time.Duration, a *mad.Answer) {
	p.mu.Lock()
	p.path.HandleAnswer(now, a)
	p.publish()
	p.mu.Unlock()
	p.resume(now)
}

// resume resumes queue pairs that wait, in their order, as long as there is room. One that uses it up waits behind the
// others.
func (p *pacedPath) resume(now time.Duration) {
	for {
		p.mu.Lock()
		if len(p.waiting) == 0 || !p.hasRoom() {
			p.setTimer(now)
			p.mu.Unlock()
			return
		}
		u := p.waiting[0]
		p.waiting[0] = nil
		p.waiting = p.waiting[1:]
		p.mu.Unlock()
		u.resume()
	}
}

// receiveDatagrams takes what is addressed to QP 1 of a share.
func (d *Device) receiveDatagrams(number uint32, packets []roce.Received) {
	for len(packets) > 0 {
		n := 0
		for n < len(packets) && !isPace(&packets[n]) {
			n++
		}
		switch {
		case n == 0:
			d.receivePace(&packets[0])
			n = 1
		case number == mad.QPN:
			d.Datagrams(packets[:n])
		default:
			d.UnknownQP.Add(uint64(n))
		}
		packets = packets[n:]
	}
}

func isPace(p *roce.Received) bool {
	h := &p.Header
	return h.Opcode == roce.UDSendOnly && h.QKey == mad.QKey && h.InDefaultPartition() && mad.IsPace(p.Payload)
}

// receivePace answers a Mark, or takes an Answer.
func (d *Device) receivePace(p *roce.Received) {
	var a mad.Answer
	isAnswer, err := a.Decode(p.Payload)
	if err != nil {
		return
	}
	now := d.Clock.Now()
	from := p.Header.SourceQPN
	d.pacing.mu.Lock()
	if isAnswer {
		to := d.pacing.to[pacedKey{p.Flow.Remote, from >> ShareShift}]
		d.pacing.mu.Unlock()
		if to != nil {
			to.answer(now, &a)
		}
		return
	}
	a = d.pacing.buffer.Answer(now, &a.Mark)
	d.pacing.mu.Unlock()
	flow := roce.Flow{Local: p.Flow.Local, Remote: p.Flow.Remote}
	flow.SourcePort = d.Carrier.SourcePort(flow.Local, mad.QPN)
	d.sendDatagram(flow, from, p.Header.DestQPN, a.Append(nil))
}

// sendDatagram sends a management datagram. It is not counted among the queue pairs' packets.
func (d *Device) sendDatagram(flow roce.Flow, to, from uint32, datagram []byte) {
	packet := [1]roce.Packet{{
		Header: roce.Header{
			Opcode: roce.UDSendOnly, PKey: roce.DefaultPKey, DestQPN: to, QKey: mad.QKey, SourceQPN: from,
		},
		Payload: [][]byte{datagram},
	}}
	// The carrier fails only when it is closed, and then nobody waits.
	_ = d.Carrier.Send(flow, packet[:])
}
