package main

import (
	"encoding/binary"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// A link passes no more than it is given. Where it passed less than its rate, the
// frames that its sender had sent and that had not arrived tell whose fault that
// is: the link's if there were some all the time, the sender's if there were none.

// By is the wire bytes of a sender's frames in each millisecond.
type By struct {
	First int64 // the millisecond that Bytes[0] is of, since 1970
	Bytes []uint64
}

func (y *By) add(stamp int64, wire uint64) {
	ms := stamp / int64(time.Millisecond)
	if len(y.Bytes) == 0 {
		y.First = ms
	}
	at := ms - y.First
	if at < 0 || at > maxMilliseconds {
		return // the clock was set
	}
	for int64(len(y.Bytes)) <= at {
		y.Bytes = append(y.Bytes, 0)
	}
	y.Bytes[at] += wire
}

// maxMilliseconds bounds a By.
const maxMilliseconds = 600_000

// in returns the bytes of a millisecond.
func (y *By) in(ms int64) uint64 {
	if at := ms - y.First; at >= 0 && at < int64(len(y.Bytes)) {
		return y.Bytes[at]
	}
	return 0
}

// fromSender reports whether the first end of the link sent a frame.
func fromSender(b []byte) bool {
	const ether, source = 12, 14 + 12
	return len(b) >= source+4 && binary.BigEndian.Uint16(b[ether:]) == unix.ETH_P_IP && [4]byte(b[source:]) == addresses[0].As4()
}

// Of a millisecond that counts as full, the link had this much to send at either
// end, as the time that its rate takes for it: so much that it did not run dry
// meanwhile, and more than what an engine holds that sends late.
const plenty = 500 * time.Microsecond

// whileFull says how fast the link passed frames while it had plenty to send, in
// bits per second, and how much of the time that was. Frames that were lost on the
// path count as if they still were there, in the link's disfavour.
func whileFull(sent, passed *By, asked uint64, begin, end int64) (rate, share float64) {
	enough := float64(asked) / 8 * plenty.Seconds()
	var inside, bytes float64 // of the link at the end of the millisecond; passed while it was full
	full, all := 0, 0
	first, last := begin/int64(time.Millisecond), end/int64(time.Millisecond)
	for ms := min(sent.First, passed.First); ms < last; ms++ {
		before := inside
		inside += float64(sent.in(ms)) - float64(passed.in(ms))
		if ms <= first {
			continue
		}
		all++
		if before >= enough && inside >= enough {
			full++
			bytes += float64(passed.in(ms))
		}
	}
	if full == 0 {
		return 0, 0
	}
	return bytes * 8 / (float64(full) * time.Millisecond.Seconds()), float64(full) / float64(all)
}

// best divides a time into equal parts and returns the highest rate at which the link
// passed frames in one of them. It takes only parts in which the link had plenty to send
// all along, and returns 0 if there were none.
func best(sent, passed *By, asked uint64, begin, end int64, parts int) (rate float64) {
	length := (end - begin) / int64(parts)
	for ; parts > 0; parts-- {
		if r, share := whileFull(sent, passed, asked, begin, begin+length); share == 1 {
			rate = max(rate, r)
		}
		begin += length
	}
	return rate
}

// excess returns by how many bytes at most the link was ahead of a wire of that rate, which
// passes what it is given and no more than the rate. It is below a packet's for a link
// that is not too fast, however late it is.
func excess(sent, passed *By, asked uint64) float64 {
	perMillisecond := float64(asked) / 8 * time.Millisecond.Seconds()
	var given, got, may, most float64
	last := passed.First + int64(len(passed.Bytes))
	for ms := min(sent.First, passed.First); ms < last; ms++ {
		given += float64(sent.in(ms))
		got += float64(passed.in(ms))
		may = min(may+perMillisecond, given)
		most = max(most, got-may)
	}
	return most
}

// blame says why a rate was missed, and explains it: it is "not offered" unless the
// link passed too little while it was full, by so much that this alone would have
// missed it.
func blame(sent, passed *By, asked uint64, begin, end int64) (why, explanation string) {
	rate, share := whileFull(sent, passed, asked, begin, end)
	explanation = fmt.Sprintf("the link had enough to send %.0f %% of the time", 100*share)
	if share > 0 {
		explanation += fmt.Sprintf(", and passed %.6g Mb/s then", rate/1e6)
	}
	if share*(1-rate/float64(asked)) <= rateOff {
		return "not offered", explanation
	}
	return "", explanation
}
