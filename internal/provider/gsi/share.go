package gsi

import (
	"github.com/ndklab/ndklab/internal/provider/cm"
	"github.com/ndklab/ndklab/internal/provider/roce"
)

// forward forwards a management datagram if it is another process's. The lock is held.
func (m *Manager) forward(p *roce.Received) bool {
	if m.config.Forward == nil {
		return false
	}
	share := m.router.Route(p.Flow.Local, p.Flow.Remote, p.Payload)
	return share != m.config.Share && m.config.Forward(share, p.Flow, p.Payload)
}

// HandIn takes a management datagram, which is lent, from the owner of the device, which forwarded it. The lock is not
// held.
func (m *Manager) HandIn(flow roce.Flow, datagram []byte) {
	m.Lock()
	defer m.Unlock()
	now := m.config.Clock.Now()
	m.CM.Handle(now, flow.Local, flow.Remote, datagram)
	m.Progress(now)
}

// reportChanges reports the connections that have changed.
func (m *Manager) reportChanges() {
	for r, ok := m.CM.NextChange(); ok; r, ok = m.CM.NextChange() {
		m.config.Report(r)
	}
}

// takeovers are, by share, the connections of processes that are gone whose peers
// have yet to confirm that they know.
type takeovers map[int]*takeover

type takeover struct {
	waiting int
	done    func()
}

// TakeOver ends the connections that a process left that is gone, in the owner's name. Nothing may be
// forwarded to it any more. done is called when the peers have confirmed the end, or have not for long
// enough: only then may another process have the share, since the connections' IDs are of it. The lock is
// not held.
func (m *Manager) TakeOver(share int, left []cm.Record, done func()) {
	m.Lock()
	defer m.Unlock()
	m.router.Forget(share)
	now := m.config.Clock.Now()
	o := &takeover{waiting: 1, done: done}
	m.takeovers[share] = o
	for _, r := range left {
		if m.CM.Adopt(now, r) {
			o.waiting++
		}
	}
	m.Progress(now)
	m.countEnd(share)
}

// noteEnd counts the end of a connection, if it was taken over.
func (m *Manager) noteEnd(id cm.ID) {
	if id.Share() != m.config.Share {
		m.countEnd(id.Share())
	}
}

func (m *Manager) countEnd(share int) {
	o := m.takeovers[share]
	o.waiting--
	if o.waiting == 0 {
		delete(m.takeovers, share)
		m.config.Clock.Go(o.done)
	}
}
