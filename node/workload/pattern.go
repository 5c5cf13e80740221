package workload

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
)

// pattern is the bytes that messages are made of.
type pattern struct {
	bytes []byte
	size  uint64
	span  uint64 // patternSpan
}

// The range of the offsets at which messages begin, in bytes: the most, which is that
// of workloads of many messages, and the least.
const (
	mostSpan  = 1 << 20
	leastSpan = 1 << 14
)

// patternSpan is that range for a workload. It is a power of two, so that offsets
// repeat only after as many messages. Where all messages together are short, so is the
// range, of twice their length at least, and it is shortest where nobody compares them:
// patterns that thousands of nodes have at once take time and memory.
func patternSpan(s *Spec) uint64 {
	if !s.Verify {
		return leastSpan
	}
	span := uint64(mostSpan)
	for s.Count != 0 && span > leastSpan && span/4 >= s.Count*max(s.Size, 1) && s.Count < span {
		span /= 2
	}
	return span
}

// patternLen is the length of a workload's pattern in bytes: whole words.
func patternLen(s *Spec) uint64 { return (patternSpan(s) + s.Size + 7) &^ 7 }

// newPattern is the pattern of a flow, which is unlike those of the workload's others.
func newPattern(s *Spec) *pattern {
	random := rand.New(rand.NewPCG(s.Seed, 0x6E646B6C6162+uint64(s.Flow))) // "ndklab"
	b := make([]byte, patternLen(s))
	for i := 0; i < len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], random.Uint64())
	}
	return &pattern{bytes: b, size: s.Size, span: patternSpan(s)}
}

// offset is where message i begins in the pattern. The factor is odd, hence no
// two of span messages in a row share an offset.
func (p *pattern) offset(i uint64) uint64 { return i * golden % p.span }

// message is what message i consists of.
func (p *pattern) message(i uint64) []byte {
	offset := p.offset(i)
	return p.bytes[offset : offset+p.size]
}

// difference describes where got is not the beginning of message i.
func (p *pattern) difference(i uint64, got []byte) string {
	sent := p.message(i)
	for at := range got {
		if got[at] != sent[at] {
			return fmt.Sprintf("message %d: byte %d is %#02x, sent was %#02x", i, at, got[at], sent[at])
		}
	}
	return ""
}
