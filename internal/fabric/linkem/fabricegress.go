package linkem

import (
	"github.com/ndklab/ndklab/internal/fabric/frame"
	"golang.org/x/sys/unix"
)

// sendDepartures sends the packets of a line that have left the fabric's last wire, and reports whether some are left since
// the interface takes no more at present.
func (e *egress) sendDepartures(n *line) (left bool) {
	f, rest := n.fabric, n.departed
	if n.to == nil {
		for _, p := range rest {
			n.stats.Counts.LostDown++
			f.Free(p)
		}
		rest = nil
	}
	for len(rest) > 0 {
		messages := e.sender.fillDepartures(rest)
		sent, errno := e.sender.send(n.to.fd, messages)
		now, done := f.fabric(f.now()), 0
		if sent > 0 {
			done = e.sender.ends[sent-1]
		}
		for _, p := range rest[:done] {
			if !p.counted {
				n.wire.Delivered(now, f.Size(p), p.transit, now-p.transit.Departs)
			}
			f.Free(p)
		}
		if sent < messages {
			if errno == unix.EAGAIN {
				n.departed = append(n.departed[:0], rest[done:]...)
				return true
			}
			lost := e.sender.ends[sent] - done // of one message
			for _, p := range rest[done : done+lost] {
				r := run{count: 1}
				n.lose(&r, errno)
				f.Free(p)
			}
			done += lost
		}
		rest = rest[done:]
	}
	clear(n.departed)
	n.departed = n.departed[:0]
	return false
}

// fillDepartures prepares packets as messages, successive ones of one frame as one, and returns how many messages that makes.
func (s *sender) fillDepartures(due []*packet) (messages int) {
	size := 0
	for at := 0; at < len(due) && messages < batchMessages && size < batchBytes; messages++ {
		first := due[at]
		r := first.run()
		at++
		for at < len(due) && due[at].follows(first, &r) {
			r.count++
			at++
		}
		s.ends[messages] = at
		size += s.message(messages, &r)
		if first.hops > 0 {
			first.rewrite(s.headers[messages][frame.HeaderLen:])
		}
	}
	return messages
}

// run returns the packet as a run of its frame, whose headers are to be changed if they are no longer the packet's.
func (p *packet) run() run {
	return run{held: p.held, first: p.segment, count: 1, mark: p.marked, routed: p.hops > 0}
}

// follows reports whether the packet can be sent in one message with another, behind a run that begins with that one.
func (p *packet) follows(first *packet, r *run) bool {
	next := p.run()
	return next.follows(r) && p.hops == first.hops && p.to == first.to && p.from == first.from
}
