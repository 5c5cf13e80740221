// Package sharing has what the processes that share one device have in common, and what they tell each other.
//
// Each has a device (provider.Miniport) of its own for one share of the queue pair numbers and communication IDs. They
// have one ledger and one GUID. Share 0 is the owner's: all management datagrams arrive there, and it ends the
// connections of processes that died (gsi.Manager.TakeOver). Package lease does what is between them.
//
// Start reading at Config and Ledger.
package sharing

import (
	"github.com/ndklab/ndklab/internal/provider/cm"
	"github.com/ndklab/ndklab/internal/provider/roce"
)

// Max bounds the processes that share a device, its owner included.
const Max = cm.MaxShares

// A Config describes what a device has in common with those of other processes.
type Config struct {
	Ledger *Ledger

	// Forward hands a management datagram, which is lent, to the process that has a
	// share. It is called with locks held, and must neither block nor call the
	// device. If it returns false, nobody has the share; the owner then answers as
	// for something that it does not know. Nil forwards nothing.
	Forward func(share int, flow roce.Flow, datagram []byte) bool

	// Report is told of each connection when it begins, when it changes and, as
	// Closed, when nobody need tell the peer anything any more: before the peer is.
	// It is called with locks held, and must not call the device. Nil tells nobody.
	Report func(cm.Record)
}
