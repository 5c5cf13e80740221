package workload

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"weak"
)

// pattern is the bytes that the messages of a flow are made of.
type pattern struct {
	*random
	size   uint64
	span   uint64 // patternSpan
	first  uint64 // where message 0 begins
	stride uint64 // from there to where the next one does; odd
}

// random is random bytes, which the patterns of all flows of a workload share that are in
// this process. Nobody writes to them.
type random struct{ bytes []byte }

// A randomKind determines random bytes.
type randomKind struct{ seed, length uint64 }

// randoms holds the random bytes in use, and perhaps some that have gone out of use.
var randoms = struct {
	sync.Mutex
	of map[randomKind]weak.Pointer[random]
}{of: map[randomKind]weak.Pointer[random]{}}

// newRandom makes random bytes, or finds them.
func newRandom(kind randomKind) *random {
	randoms.Lock()
	defer randoms.Unlock()
	if r := randoms.of[kind].Value(); r != nil {
		return r
	}
	source := rand.New(rand.NewPCG(kind.seed, 0x6E646B6C6162)) // "ndklab"
	r := &random{make([]byte, kind.length)}
	for i := 0; i < len(r.bytes); i += 8 {
		binary.LittleEndian.PutUint64(r.bytes[i:], source.Uint64())
	}
	randoms.of[kind] = weak.Make(r)
	runtime.AddCleanup(r, forgetRandom, kind)
	return r
}

// forgetRandom is called when random bytes have gone out of use. Others of the kind may
// have taken their place by then.
func forgetRandom(kind randomKind) {
	randoms.Lock()
	defer randoms.Unlock()
	if randoms.of[kind].Value() == nil {
		delete(randoms.of, kind)
	}
}

// The range of the offsets at which messages begin, in bytes: the most, which is that
// of workloads of many messages, and the least.
const (
	mostSpan  = 1 << 20
	leastSpan = 1 << 14
)

// patternSpan returns the range of the offsets of a workload's messages in its pattern. It
// is a power of two, so that offsets repeat only after as many messages. Where all messages together are short, so is the
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

// patternLen returns the length of a workload's pattern in bytes: whole words.
func patternLen(s *Spec) uint64 { return (patternSpan(s) + s.Size + 7) &^ 7 }

// newPattern returns the pattern of a flow. The workload's others begin at another place,
// and go from one message to the next by another stride.
func newPattern(s *Spec) *pattern {
	flow := scrambled(s.Seed ^ uint64(s.Flow)*golden)
	return &pattern{
		random: newRandom(randomKind{s.Seed, patternLen(s)}),
		size:   s.Size, span: patternSpan(s), first: flow >> 32, stride: flow | 1,
	}
}

// offset returns the place in the pattern at which message i begins. The stride is odd,
// hence no two of span messages in a row share an offset.
func (p *pattern) offset(i uint64) uint64 { return (p.first + i*p.stride) % p.span }

// message returns the bytes of message i.
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
