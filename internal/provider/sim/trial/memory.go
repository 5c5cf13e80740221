package trial

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
)

// A Memory is the memory that a consumer has registered: the provider reads and writes Bytes, and Image has the bytes as
// they were at the last check. A claim must explain each change since.
type Memory struct {
	Bytes, Image []byte
	Frozen       bool // the host is dead: nothing may change
	trial        *Trial
	host         fmt.Stringer
	claims       []*Claim
}

// A Claim is a range of memory in use by a request: one that only reads it, or one that brings something there. Ranges
// that are written to are nobody else's, so that at any time each byte is either what it was or what it will be.
type Claim struct {
	From, To int
	Offset   int // of From in what arrives
	memory   *Memory
	arrival  Arrival // nil: the range is only read
}

// An Arrival is a request or receive by which a claim's range is written.
type Arrival interface {
	fmt.Stringer
	// Allows returns why the bytes that have come to a claim cannot have; "" if they can. Those in [first, last] are
	// the ones that changed.
	Allows(c *Claim, first, last int) string
}

// NewMemory makes a host's memory, of random content.
func (t *Trial) NewMemory(host fmt.Stringer, size int) *Memory {
	m := &Memory{Bytes: make([]byte, size), Image: make([]byte, size), trial: t, host: host}
	m.Fill(0, size)
	return m
}

// Fill has the consumer write something new to its memory.
func (m *Memory) Fill(from, to int) {
	randomize(m.trial.Rand, m.Bytes[from:to])
	copy(m.Image[from:to], m.Bytes[from:to])
}

func randomize(r *rand.Rand, to []byte) {
	for i := 0; i < len(to); i += 8 {
		v := r.Uint64()
		for j := i; j < min(i+8, len(to)); j++ {
			to[j] = byte(v)
			v >>= 8
		}
	}
}

// Check checks all that has changed since the last time.
func (m *Memory) Check() {
	if bytes.Equal(m.Bytes, m.Image) {
		return
	}
	if m.Frozen {
		m.trial.Fail("memory as the model has it", "%v is dead and its memory changes", m.host)
	}
	for _, c := range m.claims {
		c.Check()
	}
	if !bytes.Equal(m.Bytes, m.Image) {
		first, last := differences(m.Bytes, m.Image)
		m.trial.Fail("memory as the model has it", "%v: bytes %d to %d have changed, or some of them, where nothing arrives", m.host, first, last)
	}
}

// differences returns the first and the last place where a and b, which differ, do.
func differences(a, b []byte) (first, last int) {
	for a[first] == b[first] {
		first++
	}
	for last = len(a) - 1; a[last] == b[last]; last-- {
	}
	return first, last
}

// Free reports whether a range can be claimed. Several may read a range.
func (m *Memory) Free(from, to int, write bool) bool {
	return !slices.ContainsFunc(m.claims, func(c *Claim) bool {
		return from < c.To && c.From < to && (write || c.arrival != nil)
	})
}

// Claim takes a range that is free. by is nil for one that is only read.
func (m *Memory) Claim(from, to int, by Arrival, offset int) *Claim {
	c := &Claim{From: from, To: to, Offset: offset, memory: m, arrival: by}
	m.claims = append(m.claims, c)
	return c
}

// DropClaims ends all claims, of a device that is closed.
func (m *Memory) DropClaims() { m.claims = nil }

// Share claims the same range once more, for reading what is being written there.
func (c *Claim) Share() *Claim { return c.memory.Claim(c.From, c.To, nil, 0) }

// Content returns the bytes in the claim's range.
func (c *Claim) Content() []byte { return c.memory.Bytes[c.From:c.To] }

// Check checks what has changed in the claim's range.
func (c *Claim) Check() {
	now, before := c.Content(), c.memory.Image[c.From:c.To]
	if c.arrival == nil || bytes.Equal(now, before) {
		return
	}
	first, last := differences(now, before)
	if why := c.arrival.Allows(c, first, last); why != "" {
		c.memory.trial.Fail("memory as the model has it", "%v: bytes %d to %d of [%d, %d), where %v arrives: %s",
			c.memory.host, c.From+first, c.From+last, c.From, c.To, c.arrival, why)
	}
	copy(before, now)
}

// Explains reports whether what is in the claim's range, as far as it has changed, is part of data. With inOrder,
// everything before it must be there, too.
func (c *Claim) Explains(data []byte, first, last int, inOrder bool) bool {
	if c.Offset+last >= len(data) {
		return false
	}
	now, before := c.Content(), c.memory.Image[c.From:c.To]
	for i := range last + 1 {
		if now[i] != data[c.Offset+i] && (inOrder || now[i] != before[i]) {
			return false
		}
	}
	return true
}

// Holds reports whether the claim's range had, when it was last checked, the part of data that belongs there.
func (c *Claim) Holds(data []byte) bool {
	return bytes.Equal(c.memory.Image[c.From:c.To], data[c.Offset:c.Offset+c.To-c.From])
}

// CheckArrived fails the trial unless the claim's range has what was to come.
func (c *Claim) CheckArrived(data []byte, what any) {
	c.memory.Check()
	if !c.Holds(data) {
		c.memory.trial.Fail("success means that the data is there", "%v: not all of it is at bytes %d to %d of %v", what, c.From, c.To-1, c.memory.host)
	}
}

// Release ends the claim.
func (c *Claim) Release() {
	c.memory.claims = slices.DeleteFunc(c.memory.claims, func(o *Claim) bool { return o == c })
}

// ReleaseAll ends claims.
func ReleaseAll(claims *[]*Claim) {
	for _, c := range *claims {
		c.Release()
	}
	*claims = nil
}
