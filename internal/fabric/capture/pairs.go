package capture

import "hash/maphash"

var signatures = maphash.MakeSeed()

// signature tells packets of sources from one another: by their length, and by
// their headers and some payload. It is never 0.
func signature(source int, packet []byte, length int) uint64 {
	s := maphash.Bytes(signatures, packet[:min(len(packet), TapLength)])
	return max(1, s^uint64(length)<<48^uint64(source)<<32)
}

// pairs brings packets and the decisions of taps on them together, whichever
// comes first. Of packets that are the same to the byte, such as retransmissions,
// the first meets the first decision.
type pairs struct {
	packets   map[uint64]*held // that have no decision yet
	decisions map[uint64]*fate // that have no packet yet
	oldest    *fate            // of decisions, in the order they came
	newest    *fate
}

// A fate is a decision that waits for its packet.
type fate struct {
	decision
	came  int64 // ns since 1970
	met   bool
	next  *fate // of the same key
	later *fate // of any
}

func newPairs() pairs { return pairs{packets: map[uint64]*held{}, decisions: map[uint64]*fate{}} }

// packet takes a packet, which gets its comment now or later.
func (p *pairs) packet(h *held, key uint64) {
	if f := p.decisions[key]; f != nil {
		h.comment, f.met = f.comment, true
		p.drop(f)
		return
	}
	h.key = key
	last := p.packets[key]
	if last == nil {
		p.packets[key] = h
		return
	}
	for last.next != nil {
		last = last.next
	}
	last.next = h
}

// decision takes a decision.
func (p *pairs) decision(d decision, now int64) {
	if h := p.packets[d.key]; h != nil {
		h.comment = d.comment
		p.giveUp(h)
		return
	}
	f := &fate{decision: d, came: now}
	if p.newest == nil {
		p.oldest = f
	} else {
		p.newest.later = f
	}
	p.newest = f
	last := p.decisions[d.key]
	if last == nil {
		p.decisions[d.key] = f
		return
	}
	for last.next != nil {
		last = last.next
	}
	last.next = f
}

// giveUp ends a packet's waiting, if it is.
func (p *pairs) giveUp(h *held) {
	if h.key == 0 {
		return
	}
	if first := p.packets[h.key]; first == h && h.next == nil {
		delete(p.packets, h.key)
	} else if first == h {
		p.packets[h.key] = h.next
	} else {
		for first.next != h {
			first = first.next
		}
		first.next = h.next
	}
	h.key, h.next = 0, nil
}

// expire forgets decisions whose packets had no room: their sources have come past
// them, or they came before an instant.
func (p *pairs) expire(sources []progress, before int64) {
	for f := p.oldest; f != nil && (f.met || f.stamp+int64(skew) < sources[f.source].taken || f.came < before); f = p.oldest {
		if !f.met {
			p.drop(f)
		}
		if p.oldest = f.later; p.oldest == nil {
			p.newest = nil
		}
	}
}

// drop takes a decision, the first of its key, from those that wait.
func (p *pairs) drop(f *fate) {
	if f.next == nil {
		delete(p.decisions, f.key)
	} else {
		p.decisions[f.key] = f.next
	}
}
