package cm

import (
	"net/netip"

	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// A table has the connections of an Endpoint under the numbers that messages name them by. It belongs to its Endpoint.
type table struct {
	nextID ID

	// A connection is in byID from Connect or its REQ to TimewaitOver, in byPeer
	// since the peer's communication ID is known, and in byQPN since its QPN is
	// known for as long as packets to that QPN may be under way.
	byID   map[ID]*connection
	byPeer map[peerKey]*connection
	byQPN  map[qpnKey]*connection
	// lookUps are those of peers, from their SIDR_REQ until they need not be answered again.
	lookUps map[lookUpKey]*connection

	strays uint64 // see Endpoint.Strays
}

// A peerKey names a connection, and a qpnKey a queue pair, as a peer does: its numbers
// mean something together with its adapter's GUID, which anybody can claim, and with its
// address, which makes a stranger's claim another key.
type peerKey struct {
	remote netip.Addr
	guid   uint64
	id     uint32
}

type qpnKey struct {
	remote netip.Addr
	guid   uint64
	qpn    uint32
}

// A lookUpKey identifies a peer's look-up.
type lookUpKey struct {
	path path
	id   uint32
}

func newTable(firstID ID) table {
	return table{
		nextID: firstID, byID: map[ID]*connection{}, byPeer: map[peerKey]*connection{}, byQPN: map[qpnKey]*connection{},
		lookUps: map[lookUpKey]*connection{},
	}
}

// add gives a connection a new ID, by which it is known from then on.
func (t *table) add(c *connection) {
	for t.nextID == 0 || t.byID[t.nextID] != nil {
		t.nextID = t.nextID.next()
	}
	c.id = t.nextID
	t.nextID = t.nextID.next()
	t.byID[c.id] = c
}

// setPeer records who the peer of a connection is.
func (t *table) setPeer(c *connection, guid uint64, id, qpn uint32) {
	c.peerGUID, c.peerID, c.peerQPN = guid, id, qpn
	t.byPeer[c.peerKey()] = c
	t.byQPN[c.qpnKey()] = c
	c.noteChange()
}

// forgetQPN lets the peer use its QPN for another connection.
func (t *table) forgetQPN(c *connection) {
	if key := c.qpnKey(); t.byQPN[key] == c {
		delete(t.byQPN, key)
	}
}

// remove forgets a connection.
func (t *table) remove(c *connection) {
	delete(t.byID, c.id)
	if key := c.lookUpKey(); t.lookUps[key] == c {
		delete(t.lookUps, key)
	}
	if key := c.peerKey(); t.byPeer[key] == c {
		delete(t.byPeer, key)
	}
	t.forgetQPN(c)
}

// find returns the connection that a message between two communication IDs is about;
// nil if there is none.
func (t *table) find(from path, localID ID, peerID uint32) *connection {
	c := t.byID[localID]
	if c == nil || c.unmanaged || !t.isOf(c, from) || c.state == requestSent || c.peerID != peerID {
		return nil
	}
	return c
}

// findRejected returns the connection that a REJ is about; nil if there is none.
func (t *table) findRejected(from path, m *mad.REJ) *connection {
	if guid, ok := m.GUID(); ok && m.Reason == mad.ReasonTimeout && m.RemoteID == 0 {
		// The peer gave up before it had heard from us.
		c := t.byPeer[peerKey{from.remote, guid, m.LocalID}]
		if c == nil || !t.isOf(c, from) {
			return nil
		}
		return c
	}
	c := t.byID[ID(m.RemoteID)]
	switch {
	case c == nil || c.unmanaged || !t.isOf(c, from):
		return nil
	case c.state == requestSent:
		return c
	case m.Message == mad.MessageREQ:
		// Of a stray duplicate of our REQ, which was answered otherwise.
		return nil
	case c.peerID != m.LocalID:
		return nil
	}
	return c
}

// isOf reports whether a datagram that names a connection has come between its addresses.
func (t *table) isOf(c *connection, from path) bool {
	if c.path() != from {
		t.strays++
		return false
	}
	return true
}
