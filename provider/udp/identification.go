package udp

import (
	"net/netip"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// This file verifies packets whose IPv4 identification, which the ICRC covers,
// the socket does not show.
//
// Peers of our kind send identifications known in advance. Others count them
// up: Linux rxe for each pair of addresses, over all its queue pairs and whatever
// else goes there over UDP, from a random number on (__ip_select_ident in
// net/ipv4/route.c). No control message of Linux tells a UDP socket the
// identification. But as the ICRC is linear, a packet can be solved for it
// (roce.Verifier). The solution for a corrupted packet is any of 2^32 numbers, so
// what this proves depends on how many of them are believed: here, those that our
// kind sends, and those near to where the peer has counted to.

const (
	// maxID is the highest IPv4 identification that peers of our kind send:
	// the index of a packet in a super-packet, of UDP_MAX_SEGMENTS at most.
	maxID = 127

	// nearby bounds the distance of an expected identification from the last one:
	// packets in between were lost, or overtaken, or are on their way to others.
	nearby = 512
	// spacing is the shortest time per packet at which a peer may have counted on
	// meanwhile. Its packets to other sockets of this address, such as those of
	// other processes and the one for connection management, are not seen here: a
	// million packets a second are 8 Gbit/s of 1 KiB each. So after 65 ms of
	// silence a peer may be anywhere, and a packet is protected by the solving alone.
	// It has room for what Linux adds, a random number that is at most the jiffies
	// since the counter was last used (ip_idents_reserve).
	spacing = time.Microsecond
	// maxPeers bounds how many addresses are remembered.
	maxPeers = 4096
)

// A peer has the facts that are known of the identifications that an address
// sends. Nothing is known of the zero peer.
type peer struct {
	// known says that some packet was believed.
	known bool
	// settled says that the newest packet had an identification that was expected.
	settled bool
	// counts says that there were identifications that our kind does not send, or does
	// not begin with.
	counts bool
	// last is the newest identification of a peer that counts, and since the
	// instant, on the clock, after which it arrived.
	last  uint16
	since time.Duration
}

// accept reports whether a packet is intact of which that depends on an
// identification that it was solved for.
//
// A packet that is not as expected is dropped, unless the one before was
// neither, or there was none. So a peer may begin anywhere; one that jumps loses
// one packet; one whose identifications have no order has few packets dropped, and
// nothing but the solving to protect them. Two corrupted packets that can be
// solved, one time in 2^16 each, would have to follow each other for one of them to pass.
//
// Our kind begins with 0. A peer that begins between 1 and maxID counts, or has lost its
// first packet; without that distinction the first one past maxID would be lost.
//
// since is after when it arrived: no later than now.
func (p *peer) accept(id uint16, since, now time.Duration) bool {
	ahead := id - p.last // modulo 2^16, so what is behind is far ahead
	// After 65 ms an identification can be both; then it is what was sent later.
	newer := time.Duration(ahead) <= nearby+(now-p.since)/spacing
	near := p.counts && (newer || -ahead <= nearby)
	expected := near || id <= maxID
	if p.settled && !expected {
		p.settled = false
		return false
	}
	p.settled = expected
	if near && newer || !expected || !p.known {
		p.counts, p.last, p.since = true, id, since
	}
	p.known = true
	return true
}

// A verifier verifies packets, for one goroutine.
type verifier struct {
	icrc  roce.Verifier
	now   func() time.Duration
	peers map[netip.Addr]*peer
	// emptied is the time when the socket was last found empty: packets that are
	// there now arrived later, and may have waited for the process to get its turn.
	emptied time.Duration
	foreign bool // some packet had to be solved
	// remote is the address that the newest message came from, and peer what
	// is known of it.
	remote netip.Addr
	peer   *peer
}

func newVerifier(now func() time.Duration) verifier {
	return verifier{now: now, peers: make(map[netip.Addr]*peer)}
}

// setPeer prepares for packets from an address.
func (i *verifier) setPeer(remote netip.Addr) {
	if remote == i.remote {
		return
	}
	p := i.peers[remote]
	if p == nil {
		if len(i.peers) == maxPeers {
			clear(i.peers)
		}
		p = new(peer)
		i.peers[remote] = p
	}
	i.remote, i.peer = remote, p
}

// noteEmpty notes that the socket is empty. As long as no peer counts, nobody asks.
func (i *verifier) noteEmpty() {
	if i.foreign {
		i.emptied = i.now()
	}
}

// intact reports whether the ICRC of a packet is right. index is its place in the
// super-packet, which is the identification that it most likely has.
func (i *verifier) intact(flow *roce.Flow, packet []byte, index uint16) bool {
	id, ok := i.icrc.Verify(flow, packet, index)
	if !ok {
		return false
	}
	if flow.Local.Is6() || id == index && !i.peer.counts {
		i.peer.known, i.peer.settled = true, true
		return true
	}
	i.foreign = true
	return i.peer.accept(id, i.emptied, i.now())
}
