package uc

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/rc/rctest"
	"github.com/ndklab/ndklab/internal/provider/roce"
)

// A target is memory of which peers may write to region 2 only.
type target struct{ rctest.Memory }

// Remote implements rc.Memory.
func (m target) Remote(dst [][]byte, token uint32, va uint64, length uint32, access rc.Access) ([][]byte, bool) {
	if token != 2 {
		return dst, false
	}
	return m.Memory.Remote(dst, token, va, length, access)
}

// FuzzHandle: no packets bring a QP down, or change memory that is neither of a receive nor what peers may write to. Each
// receive completes once and in order. Input is packets from the BTH on, each behind its length in two bytes.
func FuzzHandle(f *testing.F) {
	var all []byte
	from := newEnd(f, 0, 0)
	immediate, place, below := send(3, 700), write(4, 300), write(5, 300)
	immediate.Op, place.Op = rc.OpSendImmediate, rc.OpWriteImmediate
	below.VA -= 9
	from.post(send(1, 10), send(2, 600), write(3, 900), immediate)
	packets := from.sent()
	from.post(place, below)
	for _, p := range append(packets, from.sent()...) {
		one := p.header.Append(nil, len(p.payload))
		one = append(append(one, p.payload...), make([]byte, -len(p.payload)&3+4)...)
		one = append(binary.BigEndian.AppendUint16(nil, uint16(len(one))), one...)
		f.Add(one)
		all = append(all, one...)
	}
	f.Add(all)
	f.Fuzz(func(t *testing.T, input []byte) {
		const receives, room, apart = 4, 650, 4096
		e := newEnd(t, 0, 0)
		e.qp.config.Memory = target{e.memory}
		secret := bytes.Clone(e.memory[1])
		for i := range receives {
			e.receive(i, room)
		}
		for len(input) >= 2 {
			n := min(int(binary.BigEndian.Uint16(input)), len(input)-2)
			var h roce.Header
			if payload, err := roce.Decode(input[2:2+n], &h); err == nil {
				e.qp.Handle(&h, payload)
			}
			input = input[2+n:]
		}
		e.qp.Flush()
		for i, c := range e.qp.Completions(nil) {
			if c.Context != i || c.Op == rc.OpReceive && c.Bytes > room {
				t.Errorf("completion %d is %s", i, describe(c))
			}
		}
		if e.receives.Len() > 0 {
			t.Errorf("%d receives are left", e.receives.Len())
		}
		for i := range receives {
			clear(e.memory[3][i*apart:][:room])
		}
		if !bytes.Equal(e.memory[1], secret) || bytes.Count(e.memory[3], []byte{0}) != len(e.memory[3]) {
			t.Error("memory has changed that nobody may write to")
		}
	})
}
