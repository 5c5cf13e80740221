package cm

import (
	"net/netip"

	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// Unmanaged is a connection that its ends have made without connection
// management: they have told each other queue pair numbers and PSNs by means of
// their own, as ibv_rc_pingpong does over TCP (roce.md 16.2).
type Unmanaged struct {
	Local, Remote netip.Addr // of one family
	QPN, PeerQPN  uint32
	AckTimeout    mad.Timeout // has its end followed by a timewait as any other's
}

// Enter adds a connection that is established already, so that it is
// listed, ended and, when its process dies, forgotten as all others. There are no
// messages about it: Disconnect is done at once, and what peers say of the ID is
// ignored, since nobody was told of it. It makes no event.
func (e *Endpoint) Enter(u Unmanaged) ID {
	c := &connection{
		endpoint: e, state: established, connected: true, unmanaged: true,
		local: netip.AddrPortFrom(u.Local, 0), remote: netip.AddrPortFrom(u.Remote, 0),
		qpn: u.QPN, peerQPN: u.PeerQPN, ackTimeout: u.AckTimeout,
	}
	e.connections.add(c)
	c.noteChange()
	return c.id
}
