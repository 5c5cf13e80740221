package lease

import (
	"cmp"
	"slices"

	"github.com/ndklab/ndklab/internal/provider/cm"
	"github.com/ndklab/ndklab/internal/provider/sharing"
	"github.com/ndklab/ndklab/provider"
)

// Connections lists the connections of all processes, as Miniport.Connections
// does those of one: the owner's, and those of other processes, whose owners are
// in user mode and have a PID, in the owner's PID namespace (0: outside of it).
func (s *Server) Connections() []provider.ConnectionEntry {
	entries := s.device.Connections()
	for h := range s.current() {
		entries = append(entries, h.entries()...)
	}
	slices.SortStableFunc(entries, func(a, b provider.ConnectionEntry) int {
		return cmp.Or(a.Local.Compare(b.Local), a.Remote.Compare(b.Remote), cmp.Compare(a.QPN, b.QPN))
	})
	return entries
}

func (h *holder) entries() []provider.ConnectionEntry {
	h.mu.Lock()
	defer h.mu.Unlock()
	var entries []provider.ConnectionEntry
	for _, r := range h.connections {
		entries = append(entries, h.entry(&r))
	}
	return entries
}

// entry returns how a connection is listed. mu is held.
func (h *holder) entry(r *cm.Record) provider.ConnectionEntry {
	return provider.ConnectionEntry{
		Local: r.Local, Remote: r.Remote, UserModeOwner: true, OwnerPID: uint32(h.pid),
		State: r.State.String(), QPN: r.QPN, RemoteQPN: r.PeerQPN,
	}
}

// LocalEndpoints lists the listeners and shared endpoints of all processes, as
// Miniport.LocalEndpoints does those of one.
func (s *Server) LocalEndpoints() []provider.LocalEndpointEntry {
	var entries []provider.LocalEndpointEntry
	for _, held := range s.ledger.Ports() {
		if held.Use == sharing.PortOfConnection {
			continue
		}
		e := provider.LocalEndpointEntry{Local: held.Address, Listener: held.Use == sharing.PortOfListener}
		if held.Share != 0 {
			h := s.holders[held.Share].Load()
			if h == nil {
				continue // gone meanwhile
			}
			e.UserModeOwner, e.OwnerPID = true, uint32(h.pid)
		}
		entries = append(entries, e)
	}
	return entries
}
