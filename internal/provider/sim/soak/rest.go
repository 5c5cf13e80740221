package soak

import (
	"fmt"
	"slices"
	"time"

	"github.com/ndklab/ndklab/provider"
)

// Bounds on the virtual time that things take when there are no more faults.
const (
	// connections are made or given up: Connect, and Accept after that, are
	// patient for 90 s each where the other side's consumer is slow
	slowestConnect = 200 * time.Second
	// nothing lost any more, so no timer of the transport gets long
	slowestRequest = 20 * time.Second
	// a peer that is gone is told 15 times, for 30 s, that a connection is over
	slowestClose = 60 * time.Second
)

// rest ends the faults and looks whether everything comes to rest.
func (r *run) rest() {
	r.Calm()
	r.keepReceivesPosted()
	r.flushDeferred()
	r.RunUntil("connections are made or not", slowestConnect, func() bool {
		return !r.some(func(e *end) bool {
			return e.stage != unconnected && e.stage != established && e.stage != failed && !e.tearing
		})
	})
	r.RunUntil("requests complete", slowestRequest, func() bool {
		return !r.some((*end).busy)
	})
	r.RunFor(silenceTime) // what was lost before explains nothing any more
	for _, h := range r.hosts {
		if h.instance == nil {
			h.boot()
		}
	}
	r.tryAll()
	r.closeAll()
}

// some reports whether any end of an instance that is not shut down is so.
func (r *run) some(is func(*end) bool) bool {
	for _, l := range r.instances {
		if l.dead || l.closing {
			continue
		}
		for _, e := range l.ends {
			if is(e) {
				return true
			}
		}
	}
	return false
}

// busy reports whether a completion is to come; that of a silent request need
// not.
func (e *end) busy() bool {
	return slices.ContainsFunc(e.pending, func(q *request) bool { return !q.has(provider.OpSilentSuccess) })
}

// unfinished tells what has not come to its end.
func (r *run) unfinished() (s string) {
	for _, l := range r.instances {
		if !l.over && (l.closing || l.dead) {
			s += fmt.Sprintf("\n  %v is not closed", l)
		}
		for _, e := range l.ends {
			s += fmt.Sprintf("\n  %v, stage %d, peer %v, tearing %v, %d of 2 closed, pending %v, receives wanted %d",
				e, e.stage, e.peer, e.tearing, e.gone, e.pending, e.wanted())
		}
	}
	return s
}

// alive returns the ends of connections that nothing has happened to, one for
// each.
func (r *run) alive() (ends []*end) {
	for _, e := range r.ends {
		if e.active && e.healthy() && e.paired() && e.peer.healthy() {
			ends = append(ends, e)
		}
	}
	return ends
}

// keepReceivesPosted has receives where messages come, again and again until all is closed: there
// may not be room for all at once.
func (r *run) keepReceivesPosted() {
	for _, l := range r.instances {
		for _, e := range l.ends {
			if e.usable() {
				e.postReceives(e.wanted())
			}
		}
	}
	r.Clock.AfterFunc(5*time.Millisecond, func() {
		if !r.fed {
			r.keepReceivesPosted()
		}
	})
}

// flushDeferred starts what is deferred.
func (r *run) flushDeferred() {
	for _, e := range r.ends {
		if e.usable() && e.paired() && len(e.pending) > 0 {
			q := &request{end: e, number: e.posted, op: provider.OperationTypeWrite}
			e.posting(q, e.qp.Write(q, nil, 0, 0, 0))
		}
	}
}

// tryAll has each connection that is still up carry a message in each direction,
// and looks whether its ends agree.
func (r *run) tryAll() {
	alive := r.alive()
	for _, e := range alive {
		for _, from := range []*end{e, e.peer} {
			q := &request{end: from, number: from.posted, op: provider.OperationTypeSend, index: len(from.sends)}
			q.data = []byte("still there?")
			q.data = q.data[:min(len(q.data), q.longest())]
			q.flags = provider.OpInline
			q.sgl = []provider.SGE{{Inline: q.data, Length: uint32(len(q.data))}}
			from.sends = append(from.sends, q)
			from.posting(q, from.qp.Send(q, q.sgl, q.flags))
		}
	}
	r.RunUntil("messages arrive", slowestRequest, func() bool {
		return !r.some((*end).busy)
	})
	for _, e := range alive {
		for _, from := range []*end{e, e.peer} {
			if len(from.dooms) > 0 {
				continue // a receive was waiting that could not be
			}
			if !from.healthy() {
				r.Fail("connections that nothing has happened to work", "%v", from)
			}
			r.Coverage.Count("connection's end still works at last")
			from.out.CheckArrived()
		}
	}
	r.RunFor(time.Second) // for what a message has ended that met a receive made to fail
	r.some(func(e *end) bool {
		if e.usable() && e.cause {
			r.Fail("the consumer is told that a connection has failed", "%v", e)
		}
		return false
	})
	for _, l := range r.instances {
		if l.dead || l.closing {
			continue
		}
		if n, got := l.activeConnections(), l.device.Counters().ActiveConnection; n != got {
			r.Fail("counters count", "%v: %d active connections, by its counter %d", l, n, got)
		}
	}
}

// activeConnections returns how many established connections the instance has whose end
// nobody has begun.
func (l *instance) activeConnections() (n uint64) {
	for _, e := range l.ends {
		if e.stage == established && !e.event && !e.tearing {
			n++
		}
	}
	return n
}

// closeAll closes everything, and looks for what is left.
func (r *run) closeAll() {
	r.fed = true
	for _, h := range r.hosts {
		r.Later(100*time.Millisecond, h.leave)
	}
	r.RunFor(100 * time.Millisecond)
	r.RunUntil("all is closed", slowestClose, func() bool {
		for _, l := range r.instances {
			if !l.over {
				return false
			}
		}
		return r.closing == 0
	})
	r.checkMemory()
	r.Drain(slowestClose)
}

// checkCounters compares the device's counters with the model, when all
// connections are closed.
func (l *instance) checkCounters() {
	c := l.device.Counters()
	if c.Connect != l.connects || c.Accept != l.accepts || c.ActiveConnection != 0 || c.RDMAOutFrames != l.frames {
		l.run.Fail("counters count", "%v: %d connected, %d accepted, 0 active, %d frames sent; its counters say %+v",
			l, l.connects, l.accepts, l.frames, c)
	}
}

// checkNothingLeft looks at a device that is closed.
func (l *instance) checkNothingLeft() {
	u := l.device.Usage()
	if u != (provider.Usage{}) || len(l.device.Connections()) > 0 || len(l.device.LocalEndpoints()) > 0 || len(l.ends) > 0 {
		l.run.Fail("nothing is left", "%v: %+v, connections %v, endpoints %v, %d ends", l, u, l.device.Connections(), l.device.LocalEndpoints(), len(l.ends))
	}
}
