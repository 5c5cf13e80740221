package ud

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/roce"
)

// FuzzHandle: no packets bring a QP down, or change memory that is not of a receive. Only datagrams with the Q_Key complete
// receives, each once and in order. Input is packets from the BTH on, each behind its length in two bytes.
func FuzzHandle(f *testing.F) {
	for _, h := range []roce.Header{
		{Opcode: roce.UDSendOnly, QKey: qkey, SourceQPN: 5}, {Opcode: roce.UDSendOnlyImm, QKey: qkey, Immediate: 7},
		{Opcode: roce.UDSendOnly, QKey: qkey + 1}, {Opcode: roce.UDSendOnly, QKey: qkey, Solicited: true},
	} {
		for _, n := range []int{0, 1, 160, 161, mtu} {
			one := append(h.Append(nil, n), make([]byte, (n+3)&^3+4)...)
			f.Add(append(binary.BigEndian.AppendUint16(nil, uint16(len(one))), one...))
		}
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		const receives, room, apart = 4, 200, 4096
		e := newEnd(t)
		secret := bytes.Clone(e.memory[1])
		for i := range receives {
			e.receive(i, room)
		}
		welcome := 0
		for len(input) >= 2 {
			n := min(int(binary.BigEndian.Uint16(input)), len(input)-2)
			var h roce.Header
			payload, err := roce.Decode(input[2:2+n], &h)
			if err == nil && (h.Opcode == roce.UDSendOnly || h.Opcode == roce.UDSendOnlyImm) { // the others are not for the QP
				if h.QKey == qkey && roce.GRHLen+len(payload) <= room {
					welcome++
				}
				e.qp.Handle(&flow, 0, &h, payload)
			}
			input = input[2+n:]
		}
		received := len(e.qp.completions)
		if want := min(welcome, receives); received != want {
			t.Errorf("%d datagrams are received, want %d", received, want)
		}
		e.qp.Flush()
		for i, c := range e.qp.Completions(nil) {
			if c.Context != i || (c.Status == rc.Success) != (i < received) || c.Bytes > room {
				t.Errorf("completion %d is %+v", i, c)
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
