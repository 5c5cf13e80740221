package cm

import (
	"net/netip"

	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// A Router tells which of the Endpoints that share an adapter a datagram is for.
// All datagrams arrive at one place, since they are addressed to QP 1. Those
// about a connection carry the receiver's communication ID, and with it the share
// (roce.md 10). A REQ has none yet, and is for who holds the port that it asks
// for; its duplicates, and a REJ by which a peer takes it back before it was
// answered, are for who was given the REQ, even if the port has another holder or
// none by then.
//
// Not for concurrent use.
type Router struct {
	// Holder is the share that has a port of a local address; false if none has.
	Holder func(local netip.AddrPort) (share int, ok bool)

	// requests are whom the latest REQs were for, and recent their order: a ring
	// once it is full.
	requests map[peerKey]routed
	recent   []peerKey
	oldest   int
}

// routed is the share that a REQ was for, and its place in Router.recent. A REQ that was
// forgotten (Forget) and came again has two places there, of which this is the newer.
type routed struct{ share, place int }

// rememberedREQs bounds how many REQs a Router remembers.
const rememberedREQs = 1 << 14

// Route returns the share that a datagram which came from a remote to a local address is for.
// Datagrams for nobody in particular are for share 0.
func (r *Router) Route(local, remote netip.Addr, b []byte) int {
	h, err := mad.DecodeHeader(b)
	if err != nil {
		return 0
	}
	switch h.Attribute {
	case mad.AttributeREQ:
		return r.routeREQ(local, remote, b)
	case mad.AttributeREJ:
		m := decoded(new(mad.REJ), b)
		if guid, ok := m.GUID(); ok && m.Reason == mad.ReasonTimeout && m.RemoteID == 0 {
			return r.requests[peerKey{remote, guid, m.LocalID}].share
		}
		return ID(m.RemoteID).Share()
	case mad.AttributeREP:
		return ID(decoded(new(mad.REP), b).RemoteID).Share()
	case mad.AttributeRTU:
		return ID(decoded(new(mad.RTU), b).RemoteID).Share()
	case mad.AttributeMRA:
		return ID(decoded(new(mad.MRA), b).RemoteID).Share()
	case mad.AttributeDREQ:
		return ID(decoded(new(mad.DREQ), b).RemoteID).Share()
	case mad.AttributeDREP:
		return ID(decoded(new(mad.DREP), b).RemoteID).Share()
	case mad.AttributeSIDRREQ:
		if port, ok := mad.DatagramServicePort(decoded(new(mad.SIDRREQ), b).ServiceID); ok {
			if share, ok := r.Holder(netip.AddrPortFrom(local, port)); ok {
				return share
			}
		}
	case mad.AttributeSIDRREP:
		return ID(decoded(new(mad.SIDRREP), b).RequestID).Share()
	}
	return 0
}

// decoded returns the message in b.
func decoded[M interface{ Decode([]byte) error }](m M, b []byte) M {
	// Nothing but the header can be wrong, and that has been read. If it were, the
	// message would have no IDs and be for share 0.
	_ = m.Decode(b)
	return m
}

func (r *Router) routeREQ(local, remote netip.Addr, b []byte) int {
	q := decoded(new(mad.REQ), b)
	key := peerKey{remote, q.GUID, q.LocalID}
	if to, ok := r.requests[key]; ok {
		return to.share
	}
	port, ok := mad.ServicePort(q.ServiceID)
	if !ok {
		return 0
	}
	share, ok := r.Holder(netip.AddrPortFrom(local, port))
	if !ok {
		return 0 // not remembered: somebody may listen when the peer tries again
	}
	r.remember(key, share)
	return share
}

func (r *Router) remember(key peerKey, share int) {
	if r.requests == nil {
		r.requests = make(map[peerKey]routed)
	}
	if len(r.recent) < rememberedREQs {
		r.requests[key] = routed{share, len(r.recent)}
		r.recent = append(r.recent, key)
		return
	}
	if last := r.recent[r.oldest]; r.requests[last].place == r.oldest {
		delete(r.requests, last)
	}
	r.requests[key] = routed{share, r.oldest}
	r.recent[r.oldest] = key
	r.oldest = (r.oldest + 1) % rememberedREQs
}

// Forget says that a share has another holder, or none.
func (r *Router) Forget(share int) {
	for key, to := range r.requests {
		if to.share == share {
			delete(r.requests, key)
		}
	}
}
