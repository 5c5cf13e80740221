package cm

import (
	"errors"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// enter puts a connection from h to another host on h's books.
func (h *host) enter(to *host) ID {
	id := h.Enter(Unmanaged{Local: h.addr, Remote: to.addr, QPN: 0x11, PeerQPN: 0x12, AckTimeout: 14})
	h.settle()
	return id
}

// TestUnmanaged: such a connection is on record from beginning to end, and no
// message tells anybody.
func TestUnmanaged(t *testing.T) {
	for _, test := range []struct {
		name string
		end  func(h *host, id ID)
		told int // DisconnectDone events
	}{
		{"disconnected", func(h *host, id ID) { h.must(h.disconnect(id)) }, 1},
		{"abandoned", func(h *host, id ID) { h.abandon(id) }, 0},
		{"disconnected and abandoned", func(h *host, id ID) { h.must(h.disconnect(id)); h.abandon(id) }, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			n, h, peer := pair(t)
			id := h.enter(peer)
			r := h.records[id]
			if r.State != Connected || !r.Unmanaged || r.QPN != 0x11 || r.PeerQPN != 0x12 ||
				r.Local.Addr() != h.addr || r.Remote.Addr() != peer.addr {
				t.Errorf("on record as %+v", r)
			}
			n.clock.Run(time.Hour)
			begin := n.now()
			test.end(h, id)
			if len(h.records) > 0 {
				t.Errorf("still on record: %v", h.records)
			}
			for range test.told {
				if e := wait[DisconnectDone](h); e.TimedOut || n.now() != begin {
					t.Errorf("%+v after %v", e, n.now()-begin)
				}
			}
			if err := h.disconnect(id); !errors.Is(err, ErrState) {
				t.Errorf("disconnected once more: %v", err)
			}
			wait[TimewaitOver](h)
			if took, want := n.now()-begin, mad.Timeout(14).Duration(); took != want {
				t.Errorf("a timewait of %v, want %v", took, want)
			}
			h.none()
			n.empty()
			if len(h.sent) > 0 {
				t.Errorf("%d messages were sent", len(h.sent))
			}
		})
	}
}

// TestUnmanagedHearsNobody: a peer that guesses the ID cannot end the connection.
func TestUnmanagedHearsNobody(t *testing.T) {
	for name, m := range map[string]interface{ Append([]byte) []byte }{
		"REP":  &mad.REP{},
		"RTU":  &mad.RTU{},
		"MRA":  &mad.MRA{Message: mad.MessageREP, ServiceTimeout: 20},
		"REJ":  &mad.REJ{Message: mad.MessageOther, Reason: mad.ReasonConsumer},
		"DREQ": &mad.DREQ{RemoteQPN: 0x11},
		"DREP": &mad.DREP{},
	} {
		t.Run(name, func(t *testing.T) {
			_, h, peer := pair(t)
			id := h.enter(peer)
			switch m := m.(type) {
			case *mad.REP:
				m.RemoteID = uint32(id)
			case *mad.RTU:
				m.RemoteID = uint32(id)
			case *mad.MRA:
				m.RemoteID = uint32(id)
			case *mad.REJ:
				m.RemoteID = uint32(id)
			case *mad.DREQ:
				m.RemoteID = uint32(id)
			case *mad.DREP:
				m.RemoteID = uint32(id)
			}
			h.deliver(peer.addr, m)
			h.none()
			if h.records[id].State != Connected || h.connections.byID[id].state != established {
				t.Errorf("now on record as %v", h.records[id])
			}
			if _, waits := h.Deadline(); waits {
				t.Error("something is waited for")
			}
		})
	}
}

// TestUnmanagedIsNotAdopted: there is nobody to tell of its end.
func TestUnmanagedIsNotAdopted(t *testing.T) {
	n, h, peer := pair(t)
	id := h.enter(peer)
	heir := h.replaced()
	if heir.Adopt(n.now(), h.records[id]) || len(heir.connections.byID) > 0 {
		t.Error("it was adopted")
	}
}
