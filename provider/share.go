package provider

import (
	"github.com/ndklab/ndklab/provider/cm"
	"github.com/ndklab/ndklab/provider/roce"
)

// This file is about a device that several processes share. Each has a Miniport
// of its own for one share of the queue pair numbers and communication IDs, and
// they have one ledger and one GUID. Share 0 is the owner's: all management
// datagrams arrive there, and it ends the connections of processes that died.
// Package lease does what is between them.

// Forward hands a management datagram, which is lent, to the process that has a
// share. It is called with locks held, and must neither block nor call the
// device. If it returns false, nobody has the share; the owner then answers as
// for something that it does not know.
type Forward func(share int, flow roce.Flow, datagram []byte) bool

// Report is told of each connection when it begins, when it changes and, as
// Closed, when nobody need tell the peer anything any more: before the peer is.
// It is called with locks held, and must not call the device.
type Report func(cm.Record)

// handOn forwards a management datagram if it is another process's. cmMu is held.
func (m *Miniport) handOn(p *roce.Received) bool {
	if m.forward == nil {
		return false
	}
	share := m.router.Route(p.Flow.Local, p.Flow.Remote, p.Payload)
	return share != m.ledger.own && m.forward(share, p.Flow, p.Payload)
}

// HandIn takes a management datagram that the owner of the device forwarded. It
// is lent.
func (m *Miniport) HandIn(flow roce.Flow, datagram []byte) {
	m.cmMu.Lock()
	defer m.cmMu.Unlock()
	now := m.clock.Now()
	m.cm.Handle(now, flow.Local, flow.Remote, datagram)
	m.manage(now)
}

// reportChanges tells what became of connections. cmMu is held.
func (m *Miniport) reportChanges() {
	for r, ok := m.cm.NextChange(); ok; r, ok = m.cm.NextChange() {
		m.report(r)
	}
}

// orphans are, by share, the connections of processes that are gone whose peers
// have yet to confirm that they know.
type orphans map[int]*orphanage

type orphanage struct {
	waiting int
	done    func()
}

// TakeOver frees what a process had that is gone, and ends the connections that
// it left, in the owner's name. Nothing may be forwarded to it any more. done is
// called when the peers have confirmed the end, or have not for long enough: only
// then may another process have the share, since the connections' IDs are of it.
func (m *Miniport) TakeOver(share int, left []cm.Record, done func()) {
	m.cmMu.Lock()
	defer m.cmMu.Unlock()
	m.ledger.Clear(share)
	m.router.Forget(share)
	now := m.clock.Now()
	o := &orphanage{waiting: 1, done: done}
	m.orphans[share] = o
	for _, r := range left {
		if m.cm.Adopt(now, r) {
			o.waiting++
		}
	}
	m.manage(now)
	m.endOne(share)
}

// endOrphan follows the end of a connection, which may be an orphan. cmMu is
// held.
func (m *Miniport) endOrphan(id cm.ID) {
	if id.Share() != m.ledger.own {
		m.endOne(id.Share())
	}
}

func (m *Miniport) endOne(share int) {
	o := m.orphans[share]
	o.waiting--
	if o.waiting == 0 {
		delete(m.orphans, share)
		m.clock.Go(o.done)
	}
}
