package soak

import (
	"bytes"
	"slices"
)

// A memory is what a consumer has registered: bytes is what the provider reads
// and writes, image what it was when last looked at. Whatever has changed since
// must be explained by a claim.
type memory struct {
	instance *instance
	bytes    []byte
	image    []byte
	claims   []*claim
	frozen   bool // the host is dead: nothing may change
}

// A claim is a range of memory in use by a request: one that only reads it, or
// one that brings something there. Ranges that are written to are nobody else's,
// so that at any time each byte is either what it was or what it will be.
type claim struct {
	memory   *memory
	from, to int
	arrival  arrival // nil: only read
	offset   int     // of from in what arrives
	grant    *grant  // by which it is accessed, of a request's
}

// An arrival is what a claim's range is being written by.
type arrival interface {
	// allows says why the bytes that have come to a claim cannot have; "" if
	// they can. Those in [first, last] are the ones that changed.
	allows(c *claim, first, last int) string
	name() string
}

func newMemory(l *instance, size int) *memory {
	m := &memory{instance: l, bytes: make([]byte, size), image: make([]byte, size)}
	m.fill(0, size)
	return m
}

// fill has the consumer write something new to its memory.
func (m *memory) fill(from, to int) {
	random := m.instance.run.Rand
	for i := from; i < to; i += 8 {
		v := random.Uint64()
		for j := i; j < min(i+8, to); j++ {
			m.bytes[j] = byte(v)
			v >>= 8
		}
	}
	copy(m.image[from:to], m.bytes[from:to])
}

// check checks all that has changed since the last look.
func (m *memory) check() {
	if bytes.Equal(m.bytes, m.image) {
		return
	}
	r := m.instance.run
	if m.frozen {
		r.Fail("memory as the model has it", "%v is dead and its memory changes", m.instance)
	}
	for _, c := range m.claims {
		if c.arrival == nil || bytes.Equal(m.bytes[c.from:c.to], m.image[c.from:c.to]) {
			continue
		}
		first, last := differences(m.bytes[c.from:c.to], m.image[c.from:c.to])
		if why := c.arrival.allows(c, first, last); why != "" {
			r.Fail("memory as the model has it", "%v: bytes %d to %d of [%d, %d), where %s arrives: %s",
				m.instance, c.from+first, c.from+last, c.from, c.to, c.arrival.name(), why)
		}
		copy(m.image[c.from:c.to], m.bytes[c.from:c.to])
	}
	if !bytes.Equal(m.bytes, m.image) {
		first, last := differences(m.bytes, m.image)
		r.Fail("memory as the model has it", "%v: bytes %d to %d have changed, or some of them, where nothing arrives", m.instance, first, last)
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

// explains reports whether what is in a claim's range, as far as it has changed, is
// part of data. inOrder wants everything before it to be there, too.
func (c *claim) explains(data []byte, first, last int, inOrder bool) bool {
	if c.offset+last >= len(data) {
		return false
	}
	now, before := c.memory.bytes[c.from:c.to], c.memory.image[c.from:c.to]
	for i := range last + 1 {
		if now[i] != data[c.offset+i] && (inOrder || now[i] != before[i]) {
			return false
		}
	}
	return true
}

// free reports whether a range can be claimed. Readers get along with each
// other.
func (m *memory) free(from, to int, write bool) bool {
	return !slices.ContainsFunc(m.claims, func(c *claim) bool {
		return from < c.to && c.from < to && (write || c.arrival != nil)
	})
}

// claim takes a range that is free.
func (m *memory) claim(from, to int, by arrival, offset int) *claim {
	c := &claim{memory: m, from: from, to: to, arrival: by, offset: offset}
	m.claims = append(m.claims, c)
	return c
}

func (c *claim) release() {
	c.memory.claims = slices.DeleteFunc(c.memory.claims, func(o *claim) bool { return o == c })
}

func releaseAll(claims *[]*claim) {
	for _, c := range *claims {
		c.release()
	}
	*claims = nil
}

// arrived fails the run unless all claims have what was to come.
func (r *run) arrived(claims []*claim, data []byte, what string) {
	for _, c := range claims {
		c.memory.check()
		if got, want := c.memory.image[c.from:c.to], data[c.offset:c.offset+c.to-c.from]; !bytes.Equal(got, want) {
			first, _ := differences(got, want)
			r.Fail("success means that the data is there", "%s: byte %d is not", what, c.offset+first)
		}
	}
}
