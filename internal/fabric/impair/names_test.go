package impair

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/roce/mad"
	"github.com/ndklab/ndklab/topology"
)

// matching is the match of a fault that a topology file describes.
func matching(t *testing.T, match string) topology.Match {
	t.Helper()
	change, err := topology.ParseChange(nil, []string{"faults=[{match: {" + match + "}, action: drop}]"})
	if err != nil {
		t.Fatal(err)
	}
	return (*change.Faults)[0].Match
}

// TestOpcodeNames checks that faults know the opcodes that the adapters know, by
// the same names, and the classes that they form.
func TestOpcodeNames(t *testing.T) {
	classes := map[string]func(roce.Opcode) bool{
		"send":          func(o roce.Opcode) bool { return o.IsSend() && (o.IsRC() || o.IsUC()) },
		"write":         roce.Opcode.IsWrite,
		"read":          func(o roce.Opcode) bool { return o == roce.ReadRequest },
		"read-response": roce.Opcode.IsReadResponse,
		"ack":           func(o roce.Opcode) bool { return o.HasAETH() && !o.IsReadResponse() },
		"atomic":        roce.Opcode.IsAtomic,
		"flush":         func(o roce.Opcode) bool { return o == roce.Flush },
		"ud":            func(o roce.Opcode) bool { return o.IsSend() && !o.IsRC() && !o.IsUC() },
		"cnp":           func(o roce.Opcode) bool { return o == roce.CNP },
	}
	want := make(map[string][]uint8)
	for code := range 256 {
		o := roce.Opcode(code)
		if !o.Known() {
			continue
		}
		if got := matching(t, fmt.Sprintf("opcode: %q", o)).Opcodes; !slices.Equal(got, []uint8{uint8(o)}) {
			t.Errorf("%s matches the opcodes %x, want %x", o, got, uint8(o))
		}
		in := 0
		for class, has := range classes {
			if has(o) {
				want[class] = append(want[class], uint8(o))
				in++
			}
		}
		if in != 1 {
			t.Errorf("%s is in %d classes", o, in)
		}
	}
	for class := range classes {
		if got := matching(t, "opcode: "+class).Opcodes; !slices.Equal(got, want[class]) {
			t.Errorf("the class %s has the opcodes %x, want %x", class, got, want[class])
		}
	}
}

// TestMessageNames checks that faults know the messages of connection management
// by the names that the adapters have for them.
func TestMessageNames(t *testing.T) {
	for a := mad.AttributeREQ; a <= mad.AttributeAPR; a++ {
		if got := matching(t, "cm: "+strings.ToLower(a.String())).CM; !slices.Equal(got, []uint16{uint16(a)}) {
			t.Errorf("%s matches the attributes %x, want %x", a, got, uint16(a))
		}
	}
}
