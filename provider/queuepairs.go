package provider

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"

	"github.com/ndklab/ndklab/internal/provider/sharing"
)

// This file counts what object models beside NDKPI's have in use (package verbs), for those who
// look at the device.

// A QueuePair is a queue pair of another object model, as the device lists it.
type QueuePair struct {
	Number, PeerNumber uint32
	Transport          string     // RC, UC or UD
	State              string     // of its model
	Local, Remote      netip.Addr // not valid where it has none, as before it is connected and of UD
	Sent, Received     uint64     // packets
}

// listers are the functions that list such queue pairs.
type listers struct {
	mu  sync.Mutex // guards all; not held while they are called
	all []*lister
}

type lister struct{ list func() []QueuePair }

// ListQueuePairs has QueuePairs include what list returns, until stop is called.
func (l *listers) ListQueuePairs(list func() []QueuePair) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := &lister{list}
	l.all = append(l.all, own)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all = slices.DeleteFunc(l.all, func(x *lister) bool { return x == own })
	}
}

// QueuePairs lists the queue pairs of object models beside NDKPI's that this process has,
// by their numbers.
func (l *listers) QueuePairs() []QueuePair {
	l.mu.Lock()
	listers := slices.Clone(l.all)
	l.mu.Unlock()
	var all []QueuePair
	for _, x := range listers {
		all = append(all, x.list()...)
	}
	slices.SortFunc(all, func(a, b QueuePair) int { return cmp.Compare(a.Number, b.Number) })
	return all
}

// Objects are numbers of objects.
type Objects struct{ Instances, QPs, CQs, MRs, PDs, MWs, SRQs int32 }

// Less returns the difference to other.
func (o Objects) Less(other Objects) Objects {
	return Objects{
		o.Instances - other.Instances, o.QPs - other.QPs, o.CQs - other.CQs, o.MRs - other.MRs, o.PDs - other.PDs, o.MWs - other.MWs, o.SRQs - other.SRQs,
	}
}

// Hold adds objects of another object model to what this process has of the device; less
// than 0 takes them off. They count towards the limits of NDKPI's, which do not limit them.
func (m *Miniport) Hold(o Objects) {
	note := func(r sharing.Resource, n int32) {
		if n != 0 {
			m.ledger.Note(r, uint32(n)) // modulo 2^32, as give has it
		}
	}
	note(sharing.Instances, o.Instances)
	note(sharing.QPs, o.QPs)
	note(sharing.CQs, o.CQs)
	note(sharing.MRs, o.MRs)
	note(sharing.PDs, o.PDs)
	note(sharing.MWs, o.MWs)
	note(sharing.SRQs, o.SRQs)
}

// TellQPError tells who wants to know (Config.QPError) of the error of a queue pair of
// another object model. It may be called with locks held.
func (m *Miniport) TellQPError(e QPError) {
	if m.qpError != nil && !m.closing.Load() {
		m.qpError(e)
	}
}
