package verbsoak

import (
	"bytes"
	"slices"

	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/sim/trial"
)

// A memory is a program's, all of it registered: words for atomics, then slots of equal length.
type memory struct {
	*trial.Memory
	host  *host
	unit  int // bytes of a slot, a multiple of 8
	words []*word
	free  []int // offsets of slots that nobody uses
}

const (
	wordBytes = 8
	words     = 4
	slots     = 128
)

// A claim is the use of a slot. Each is one request's or receive's. It implements trial.Arrival.
type claim struct {
	*trial.Claim
	memory *memory // nil when the use has ended
	data   []byte  // that is to come to its beginning
	any    bool    // anything may come instead: the model compares when it has come
	name   string
}

// String names what uses the slot.
func (c *claim) String() string { return c.name }

// Allows implements trial.Arrival.
func (c *claim) Allows(_ *trial.Claim, first, last int) string {
	if c.any || c.Explains(c.data, first, last, false) {
		return ""
	}
	return "that is not what is to come"
}

func newMemory(h *host, unit int) *memory {
	m := &memory{Memory: h.run.NewMemory(h, words*wordBytes+slots*unit), host: h, unit: unit}
	for i := range words {
		m.words = append(m.words, newWord(m, i*wordBytes))
	}
	for i := range slots {
		m.free = append(m.free, words*wordBytes+i*unit)
	}
	return m
}

// claim takes a slot; nil if none is free.
func (m *memory) claim(name string, n int) *claim {
	if len(m.free) == 0 {
		return nil
	}
	i := m.host.run.Rand.IntN(len(m.free))
	from := m.free[i]
	m.free = slices.Delete(m.free, i, i+1)
	c := &claim{memory: m, name: name}
	c.Claim = m.Claim(from, from+n, c, 0)
	return c
}

// release ends the use of a slot, and writes something else there: what comes yet, or leaves, is noticed.
func (c *claim) release() {
	if c == nil || c.memory == nil {
		return
	}
	m := c.memory
	c.Check()
	c.Release()
	m.free = append(m.free, c.From)
	m.Fill(c.From, c.From+m.unit)
	c.memory = nil
}

// pieces returns an SGL of the slot's bytes in up to most pieces.
func (c *claim) pieces(most int) (sgl []rc.SGE) {
	h := c.memory.host
	at := c.From
	for k := 1 + h.run.Rand.IntN(most); k > 1; k-- {
		n := h.run.Rand.IntN(c.To - at + 1)
		sgl = append(sgl, h.piece(at, n))
		at += n
	}
	return append(sgl, h.piece(at, c.To-at))
}

// check checks all that has changed since the last time: first the words, which have a history.
func (m *memory) check() {
	for _, w := range m.words {
		w.look()
	}
	m.Check()
}

// arrived fails the run unless all that was to come is there.
func (c *claim) arrived(what any) {
	c.Check()
	if !bytes.Equal(c.Content()[:len(c.data)], c.data) {
		c.memory.host.run.Fail("success means that the data is there", "%v: not all of it is at %v's slot at %d", what, c.memory.host, c.From)
	}
}
