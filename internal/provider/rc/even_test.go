package rc

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ndklab/ndklab/internal/provider/congestion"
	"github.com/ndklab/ndklab/internal/provider/roce"
)

// opcodes returns those of what an end has sent since it had sent so many packets, as runs, and the length on the wire of
// the headers of each.
func opcodes(sent []roce.Header) (runs []string, headers map[int]bool) {
	headers = map[int]bool{}
	for i, n := 0, 0; i < len(sent); i++ {
		headers[sent[i].Opcode.HeaderLen()] = true
		n++
		if i+1 == len(sent) || sent[i+1].Opcode != sent[i].Opcode {
			runs, n = append(runs, fmt.Sprintf("%d %v", n, sent[i].Opcode)), 0
		}
	}
	return runs, headers
}

func TestEvenPackets(t *testing.T) {
	const mtu, size = 4096, 64 << 10
	split := []string{"1 RC RDMA WRITE First", "14 RC RDMA WRITE Middle", "1 RC RDMA WRITE Last"}
	answer := []string{"1 RC RDMA READ Response First", "14 RC RDMA READ Response Middle", "1 RC RDMA READ Response Last"}
	for name, c := range map[string]struct {
		change       func(c *Connection)
		write, reads []string
	}{
		"of our own":      {func(c *Connection) { c.Selective = true }, []string{"16 RC RDMA WRITE Only"}, []string{"15 RC RDMA READ Response First", "1 RC RDMA READ Response Last"}},
		"of another make": {func(*Connection) {}, []string{"16 RC RDMA WRITE Only"}, answer},
		"of a small MTU": {func(c *Connection) { c.Selective, c.MTU = true, 2048 },
			[]string{"1 RC RDMA WRITE First", "30 RC RDMA WRITE Middle", "1 RC RDMA WRITE Last"}, []string{"1 RC RDMA READ Response First", "30 RC RDMA READ Response Middle", "1 RC RDMA READ Response Last"}},
		"paced": {func(c *Connection) {
			c.Selective = true
			c.Pacer = congestion.NewPacer(&fixedRate{rate: 100e9}, 0, 0, pacedOverhead)
			c.Pacer.Unbounded = true
		}, split, answer},
	} {
		t.Run(name, func(t *testing.T) {
			connection := testConnection
			connection.MTU, connection.Credit = mtu, 1<<20
			c.change(&connection)
			p := newPair(t, testConfig, connection, path{delay: time.Microsecond}, 1)
			local, remote := p.a.memory.add(1, size), p.b.memory.add(2, 2*size)
			done := 0
			// do posts a request, and returns what an end has sent until it is complete.
			do := func(r Request, from *end) (runs []string, headers map[int]bool) {
				before := len(from.out.sent)
				r.Context = done
				p.a.post(r)
				done++
				p.await(t, p.a, done, time.Second)
				if got := p.a.done[done-1].Status; got != Success {
					t.Fatalf("%v: %v", r.Op, got)
				}
				return opcodes(from.out.sent[before:])
			}
			write := Request{Op: OpWrite, SGL: []SGE{piece(1, 0, size)}, VA: 2<<32 + 100, Token: 2}
			first, _ := do(write, p.a)
			if connection.MTU == mtu {
				if d := cmp.Diff(split, first); d != "" {
					t.Errorf("into memory that is not known (-want +got):\n%s", d)
				}
			}
			for i := range local.bytes {
				local.bytes[i] = byte(i * i >> 8)
			}
			again, headers := do(write, p.a)
			if d := cmp.Diff(c.write, again); d != "" {
				t.Errorf("into memory that is granted (-want +got):\n%s", d)
			}
			if !bytes.Equal(remote.bytes[100:100+size], local.bytes) {
				t.Error("other bytes are there than were written")
			}
			if even := len(again) == 1; even != (len(headers) == 1) {
				t.Errorf("headers of %v bytes", headers)
			}
			write.VA++ // its end is not known
			if beyond, _ := do(write, p.a); cmp.Diff(first, beyond) != "" {
				t.Errorf("beyond what is granted: %v", beyond)
			}
			clear(local.bytes)
			read, headers := do(Request{Op: OpRead, SGL: []SGE{piece(1, 0, size)}, VA: 2 << 32, Token: 2}, p.b)
			if d := cmp.Diff(c.reads, read); d != "" {
				t.Errorf("response (-want +got):\n%s", d)
			}
			if !bytes.Equal(remote.bytes[:size], local.bytes) {
				t.Error("other bytes are there than were read")
			}
			if even := len(read) == 2; even != (len(headers) == 1) {
				t.Errorf("headers of %v bytes", headers)
			}
		})
	}
}

// newEvenPair joins two ends whose packets carry 4 KiB, the first with size bytes of memory.
func newEvenPair(t *testing.T, size int) *pair {
	t.Helper()
	connection := testConnection
	connection.MTU, connection.Credit, connection.Selective = 4096, 1<<20, true
	p := newPair(t, testConfig, connection, path{delay: time.Microsecond}, 1)
	p.a.memory.add(1, size)
	return p
}

// TestRefusedWhole: a WRITE beyond the peer's memory changes nothing there, though one into most of it has succeeded.
func TestRefusedWhole(t *testing.T) {
	const size = 64 << 10
	p := newEvenPair(t, size)
	remote := p.b.memory.add(2, size)
	write := Request{Op: OpWrite, Context: 1, SGL: []SGE{piece(1, 0, size)}, VA: 2 << 32, Token: 2}
	p.a.post(write)
	p.await(t, p.a, 1, time.Second)
	copy(remote.bytes, "as it was")
	write.VA++
	p.a.post(write)
	p.await(t, p.a, 2, time.Second)
	if got := p.a.done[1].Status; got != RemoteAccess {
		t.Errorf("status %v, want %v", got, RemoteAccess)
	}
	if !bytes.HasPrefix(remote.bytes, []byte("as it was")) {
		t.Errorf("memory has changed: %q", remote.bytes[:10])
	}
}

func TestGrant(t *testing.T) {
	const top = 1<<64 - 1
	var g grant
	for _, step := range []struct {
		token  uint32
		va     uint64
		length int64
		want   grant
	}{
		{1, 100, 10, grant{1, 100, 110}},
		{1, 110, 5, grant{1, 100, 115}}, // behind
		{1, 90, 10, grant{1, 90, 115}},  // before
		{1, 95, 3, grant{1, 90, 115}},   // within
		{1, 80, 100, grant{1, 80, 180}}, // around
		{1, 181, 1, grant{1, 181, 182}}, // a byte apart
		{2, 182, 1, grant{2, 182, 183}}, // another token
		{2, top, 0, grant{2, top, top}}, // nothing, at the end of all
		{2, 1000, 0, grant{2, 1000, 1000}},
		{2, 1000, 10, grant{2, 1000, 1010}},
	} {
		if g.add(step.token, step.va, step.length); g != step.want {
			t.Fatalf("with %v: %v, want %v", step, g, step.want)
		}
	}
	for _, c := range []struct {
		token  uint32
		va     uint64
		length int64
		want   bool
	}{
		{2, 1000, 10, true}, {2, 1000, 11, false}, {2, 999, 10, false}, {2, 1009, 1, true}, {2, 1010, 0, true}, {2, 1010, 1, false},
		{2, 1011, 0, false}, {3, 1000, 10, false}, {2, top, 1, false}, {2, 1005, MaxMessage, false},
	} {
		if got := g.covers(c.token, c.va, c.length); got != c.want {
			t.Errorf("covers %v: %t", c, got)
		}
	}
}

// TestRepeatedAnswer: the network repeats each packet of the answer to a READ, and that counts once, however many Firsts it has.
func TestRepeatedAnswer(t *testing.T) {
	const size = 64 << 10
	p := newEvenPair(t, size)
	p.b.memory.add(2, size)
	p.b.out.dup = 1
	p.a.qp.counters.Retransmitted = 100 // more than that cannot have been for nothing
	p.a.post(Request{Op: OpRead, Context: 1, SGL: []SGE{piece(1, 0, size)}, VA: 2 << 32, Token: 2})
	p.await(t, p.a, 1, time.Second)
	p.clock.Run(time.Millisecond)
	if got := p.a.qp.Counters().Spurious; got != 1 {
		t.Errorf("counted as sent again for nothing: %d, want 1", got)
	}
}
