package verbsoak

import (
	"bytes"
	"math/rand/v2"
	"slices"

	"github.com/ndklab/ndklab/internal/provider/rc"
)

// A memory is a program's, all of it registered: words for atomics, then slots of equal length. image is its copy of
// when it was last looked at. Whatever has changed since must be explained by a claim.
type memory struct {
	host   *host
	bytes  []byte
	image  []byte
	unit   int // bytes of a slot, a multiple of 8
	words  []*word
	free   []int // offsets of slots that nobody uses
	claims []*claim
}

const (
	wordBytes = 8
	words     = 4
	slots     = 128
)

// A claim is the use of a slot. Each is one request's or receive's.
type claim struct {
	memory   *memory
	from, to int
	data     []byte // that is to come to its beginning
	any      bool   // anything may come instead: the model compares when it has come
	name     string
}

func newMemory(h *host, unit int) *memory {
	n := words*wordBytes + slots*unit
	m := &memory{host: h, bytes: make([]byte, n), image: make([]byte, n), unit: unit}
	m.fill(0, n)
	for i := range words {
		m.words = append(m.words, newWord(m, i*wordBytes))
	}
	for i := range slots {
		m.free = append(m.free, words*wordBytes+i*unit)
	}
	return m
}

// fill has the program write something new.
func (m *memory) fill(from, to int) {
	random(m.host.run.Rand, m.bytes[from:to])
	copy(m.image[from:to], m.bytes[from:to])
}

func random(r *rand.Rand, to []byte) {
	for i := 0; i < len(to); i += 8 {
		v := r.Uint64()
		for j := i; j < min(i+8, len(to)); j++ {
			to[j] = byte(v)
			v >>= 8
		}
	}
}

// claim takes a slot; nil if none is free.
func (m *memory) claim(name string, n int) *claim {
	if len(m.free) == 0 {
		return nil
	}
	i := m.host.run.Rand.IntN(len(m.free))
	from := m.free[i]
	m.free = slices.Delete(m.free, i, i+1)
	c := &claim{memory: m, from: from, to: from + n, name: name}
	m.claims = append(m.claims, c)
	return c
}

// release ends the use of a slot, and writes something else there: what comes yet, or leaves, is noticed.
func (c *claim) release() {
	if c == nil || c.memory == nil {
		return
	}
	m := c.memory
	c.check()
	m.claims = slices.DeleteFunc(m.claims, func(o *claim) bool { return o == c })
	m.free = append(m.free, c.from)
	m.fill(c.from, c.from+m.unit)
	c.memory = nil
}

// content returns the bytes in the slot now.
func (c *claim) content() []byte { return c.memory.bytes[c.from:c.to] }

// pieces returns an SGL of the slot's bytes in up to most pieces.
func (c *claim) pieces(most int) (sgl []rc.SGE) {
	r := c.memory.host.run
	at := c.from
	for k := 1 + r.Rand.IntN(most); k > 1; k-- {
		n := r.Rand.IntN(c.to - at + 1)
		sgl = append(sgl, c.memory.host.piece(at, n))
		at += n
	}
	return append(sgl, c.memory.host.piece(at, c.to-at))
}

// check checks all that has changed since the last look.
func (m *memory) check() {
	for _, w := range m.words {
		w.look()
	}
	if bytes.Equal(m.bytes, m.image) {
		return
	}
	r := m.host.run
	for _, c := range m.claims {
		c.check()
	}
	if bytes.Equal(m.bytes, m.image) {
		return
	}
	for i := range m.bytes {
		if m.bytes[i] != m.image[i] {
			r.Fail("memory as the model has it", "%v: byte %d has changed, in the slot at %d, where nothing is to come", m.host, i, i-(i-words*wordBytes)%m.unit)
		}
	}
}

// check checks what has changed in the slot.
func (c *claim) check() {
	m := c.memory
	now, before := m.bytes[c.from:c.to], m.image[c.from:c.to]
	if bytes.Equal(now, before) {
		return
	}
	for i := range now {
		if now[i] != before[i] && !c.any && (i >= len(c.data) || now[i] != c.data[i]) {
			m.host.run.Fail("memory as the model has it", "%v: byte %d of the slot at %d, of %s, is not what is to come", m.host, i, c.from, c.name)
		}
	}
	copy(before, now)
}

// arrived fails the run unless all that was to come is there.
func (c *claim) arrived(what any) {
	c.check()
	if got := c.content()[:len(c.data)]; !bytes.Equal(got, c.data) {
		c.memory.host.run.Fail("success means that the data is there", "%v: not all of it is at %v's slot at %d", what, c.memory.host, c.from)
	}
}
