package rc

// A carrier joins packets of one length to a super-packet, which costs the kernel little more than one of them, and its last
// may be shorter. The First of a WRITE is 16 bytes longer than what follows, by its RETH, and the First and the Last of a
// response to a READ are 4 bytes longer than what is between, by their AETH: 64 KiB take three super-packets or four,
// where one and a little would do. So all packets of a message have one length, where that changes nothing else:
//
//   - A WRITE goes as one WRITE Only for each packet, each with the RETH of its own part, which is legal to any peer. But a peer
//     examines what a First asks for as a whole, and refuses it before anything is written. So that this stays as
//     it is, only a WRITE into memory that the peer has granted to one before goes so. It may be refused half-way for all
//     that, if the token has ended meanwhile: so may a First and what follows it.
//   - A response to a READ goes as Firsts and a Last, all of which have an AETH. Between them the IBTA wants Middles: both ends have to
//     be ours (Connection.Selective), and ours goes by the sequence numbers.

// evenMTU is the least MTU of a connection whose packets are even: 16 bytes more are 0.4 % of a packet then.
const evenMTU = 4096

// evenPackets reports whether packets of a message are to have one length. Paced packets leave one by one.
func (c *Connection) evenPackets() bool { return c.Pacer == nil && c.MTU >= evenMTU }

// A grant is memory of the peer's that it has let WRITEs change.
type grant struct {
	token    uint32
	from, to uint64
}

// covers reports whether all of so many bytes at va is granted by the token.
func (g *grant) covers(token uint32, va uint64, length int64) bool {
	return token == g.token && va >= g.from && va <= g.to && uint64(length) <= g.to-va
}

// add adds a range. Where it has a gap to what is there, or another token, it takes the place of that.
func (g *grant) add(token uint32, va uint64, length int64) {
	from, to := va, va+uint64(length)
	if token == g.token && from <= g.to && to >= g.from {
		from, to = min(from, g.from), max(to, g.to)
	}
	*g = grant{token, from, to}
}
