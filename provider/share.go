package provider

import (
	"github.com/ndklab/ndklab/internal/provider/cm"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/transport"
)

// This file is about a device that several processes share. Each has a Miniport
// of its own for one share of the queue pair numbers and communication IDs, and
// they have one ledger and one GUID. Share 0 is the owner's: all management
// datagrams arrive there, and it ends the connections of processes that died.
// Package lease does what is between them.

// ShareShift is how far a queue pair's number is to be shifted right to be
// that of the share that has it.
const ShareShift = transport.ShareShift

// Forward hands a management datagram, which is lent, to the process that has a
// share. It is called with locks held, and must neither block nor call the
// device. If it returns false, nobody has the share; the owner then answers as
// for something that it does not know.
type Forward func(share int, flow roce.Flow, datagram []byte) bool

// Report is told of each connection when it begins, when it changes and, as
// Closed, when nobody need tell the peer anything any more: before the peer is.
// It is called with locks held, and must not call the device.
type Report func(cm.Record)

// HandIn takes a management datagram that the owner of the device forwarded. It
// is lent.
func (m *Miniport) HandIn(flow roce.Flow, datagram []byte) { m.manager.HandIn(flow, datagram) }

// TakeOver frees what a process had that is gone, and ends the connections that
// it left, in the owner's name. Nothing may be forwarded to it any more. done is
// called when the peers have confirmed the end, or have not for long enough: only
// then may another process have the share, since the connections' IDs are of it.
func (m *Miniport) TakeOver(share int, left []cm.Record, done func()) {
	m.ledger.Clear(share)
	m.manager.TakeOver(share, left, done)
}
