package workload

import (
	"fmt"
	"slices"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/topology"
)

// This file has what the two ends of a flow of sends, writes or reads both derive from its
// spec.

// channels returns the number of QPs. Each has messages of its own, and slots: places for
// those in flight, which they take in turn.
func (s *Spec) channels() int { return max(1, s.QPs) }

// depth returns the number of messages in flight on a channel.
func (s *Spec) depth() int {
	if s.Measure == topology.Latency {
		return 1
	}
	return max(1, s.Depth)
}

// latencySlots are more than one since the ends do not wait for acknowledgements of
// what they send to and fro: requests stay in the queue for a little longer.
const latencySlots = 8

// slots returns the number of messages that a channel has room for. It is more than are in flight, so that
// a slot can be verified and given back while others are used.
func (s *Spec) slots() int {
	if s.Measure == topology.Latency {
		return latencySlots
	}
	return 2 * s.depth()
}

// cqDepth returns the depth of either end's CQ: for all that a QP may have queued, with room
// for one that has been given up.
func (s *Spec) cqDepth() uint32 { return uint32(4 * s.slots() * s.channels()) }

// steps returns the number of sizes that are done one after the other.
func (s *Spec) steps() int {
	if s.sweeps() {
		return len(s.Sizes)
	}
	return 1
}

// stepSize returns the size of messages in a step, from 0; the largest, if each has its own.
func (s *Spec) stepSize(step int) uint64 {
	if s.sweeps() {
		return s.Sizes[step]
	}
	return s.Size
}

// sweeps reports whether Sizes are done one after the other.
func (s *Spec) sweeps() bool { return len(s.Sizes) > 0 && !s.Mixed }

// number returns the number of a channel's message among all of the flow's, by which its contents
// are known.
func (s *Spec) number(channel int, index uint64) uint64 {
	return index*uint64(s.channels()) + uint64(channel)
}

// drawn returns the size of a message, by its number, if each has its own.
func (s *Spec) drawn(number uint64) uint64 {
	return s.Sizes[scrambled(s.Seed^number*golden)%uint64(len(s.Sizes))]
}

// golden is 2^64 divided by the golden ratio: multiples of it are spread evenly.
const golden = 0x9E3779B97F4A7C15

// scrambled applies the finalizer of SplitMix64 (Steele, Lea, Flood 2014). Different numbers
// become numbers that look random.
func scrambled(x uint64) uint64 {
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// wrongSize returns what is wrong with the size of a message, by its number; "" if nothing is.
func (s *Spec) wrongSize(number, size uint64) string {
	want := s.Size
	switch {
	case s.Mixed:
		want = s.drawn(number)
	case s.sweeps():
		if slices.Contains(s.Sizes, size) {
			return ""
		}
		return fmt.Sprintf("not one of %d", s.Sizes)
	}
	if size == want {
		return ""
	}
	return fmt.Sprintf("not %d", want)
}

// answered reports whether the server answers each message in kind.
func (s *Spec) answered() bool { return s.Measure == topology.Latency && s.Operation != topology.Read }

// answersBySend reports whether it does so by sends.
func (s *Spec) answersBySend() bool { return s.answered() && s.Operation == topology.Send }

// announces reports whether the server is told of each message, and says when it has
// compared it: a write says nothing to the other end by itself.
func (s *Spec) announces() bool {
	return s.Operation == topology.Write && (s.Verify || s.Measure == topology.Latency)
}

// serverReceives returns the number of receives that a QP of the server has posted: none
// where the client sends it nothing.
func (s *Spec) serverReceives() int {
	if s.Operation == topology.Send || s.announces() {
		return s.slots()
	}
	return 0
}

// clientReceives returns the number of receives that a QP of the client has posted.
func (s *Spec) clientReceives() int {
	if s.answered() || s.announces() {
		return s.slots()
	}
	return 0
}

// unverifiedRoom is as much memory as a channel has for messages that nobody looks at,
// unless a single one is longer: they may lie on top of each other.
const unverifiedRoom = 1 << 20

// channelSlots returns the number of a channel's slots that have memory of their own.
func (s *Spec) channelSlots() uint64 {
	slots := uint64(s.slots())
	if s.Verify {
		return slots
	}
	return min(slots, max(1, unverifiedRoom/max(1, s.Size)))
}

// channelRoom returns the memory that a channel has for messages, in bytes; room that of all.
func (s *Spec) channelRoom() uint64 { return s.channelSlots() * s.Size }
func (s *Spec) room() uint64        { return uint64(s.channels()) * s.channelRoom() }

// SlotsOfChannel returns the number of messages that a connection has room for.
func (s *Spec) SlotsOfChannel() uint64 { return uint64(s.slots()) }

// Memory returns the bytes that the ends of a flow have for messages, and the length of the
// pattern that those are made of.
func (s *Spec) Memory() (messages, pattern uint64) {
	switch s.Operation {
	case topology.Send, topology.Write:
		if messages = s.room(); s.answered() {
			messages *= 2
		}
	case topology.Read:
		messages = s.room()
	case topology.Storage, topology.AllReduce:
		messages = 2 * uint64(s.channels()*s.depth()) * s.Size
	}
	return messages, patternLen(s)
}

// place returns the offset of a slot's memory in that of all channels.
func (s *Spec) place(channel int, slot uint64) uint64 {
	return uint64(channel)*s.channelRoom() + slot%s.channelSlots()*s.Size
}

// inline returns the most that a QP sends inline, in bytes.
func (s *Spec) inline() uint32 {
	if s.Inline {
		return uint32(max(noticeLen, s.Size))
	}
	return noticeLen
}

// flags returns the flags of a request of either end that carries a message.
func (s *Spec) flags() provider.OpFlags {
	var flags provider.OpFlags
	if s.Inline {
		flags |= provider.OpInline
	}
	if s.answered() {
		flags |= provider.OpSilentSuccess // the answer says it
	}
	return flags
}

// FromPattern reports whether the packets of messages have their payload from the pattern.
// That of others is from memory which changes.
func (s *Spec) FromPattern() bool {
	switch s.Operation {
	case topology.Send, topology.Write, topology.Read:
		return !s.Inline
	}
	return false
}

// payload returns what a message is sent from: the pattern p, which source has registered.
func (s *Spec) payload(source *memory, p *pattern, number, size uint64) provider.SGE {
	if s.Inline {
		return provider.SGE{Length: uint32(size), Inline: p.message(number)[:size]}
	}
	return source.sge(p.offset(number), size)
}
