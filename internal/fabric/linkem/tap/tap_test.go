package tap

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// Appended packets are read back, and the stream ends behind the last of them.
func TestRoundTrip(t *testing.T) {
	packet := rapid.Custom(func(t *rapid.T) Packet {
		return Packet{
			Direction: rapid.IntRange(0, 1).Draw(t, "direction"),
			Stamp:     rapid.Int64().Draw(t, "stamp"),
			Departs:   rapid.Int64().Draw(t, "departs"),
			Missed:    rapid.Uint32().Draw(t, "missed"),
			Comment:   rapid.StringN(0, -1, 255).Draw(t, "comment"),
			Size:      rapid.IntRange(0, 1<<17).Draw(t, "size"),
			Frame:     rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "frame"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(packet, 0, 5).Draw(t, "packets")
		var stream []byte
		for i := range want {
			before := len(stream)
			stream = Append(stream, &want[i])
			if got := len(stream) - before; got != Len(&want[i]) {
				t.Fatalf("%d bytes were appended, Len says %d", got, Len(&want[i]))
			}
		}
		r := NewReader(bytes.NewReader(stream))
		for i := range want {
			got, err := r.Next()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want[i], got, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("packet %d (-want +got):\n%s", i, diff)
			}
			if r.Pending() != (i < len(want)-1) {
				t.Fatalf("after packet %d of %d: pending %v", i+1, len(want), r.Pending())
			}
		}
		if _, err := r.Next(); err != io.EOF {
			t.Fatalf("at the end: %v", err)
		}
	})
}

func TestALongCommentIsCut(t *testing.T) {
	p := Packet{Comment: strings.Repeat("x", 300), Frame: []byte("frame")}
	got, err := NewReader(bytes.NewReader(Append(nil, &p))).Next()
	if err != nil || got.Comment != p.Comment[:255] || string(got.Frame) != "frame" {
		t.Errorf("comment of %d bytes, frame %q, %v", len(got.Comment), got.Frame, err)
	}
}

func TestBrokenStreams(t *testing.T) {
	whole := Append(nil, &Packet{Comment: "dropped: loss", Size: 60, Frame: make([]byte, 60)})
	for cut := 1; cut < len(whole); cut++ {
		if _, err := NewReader(bytes.NewReader(whole[:cut])).Next(); err != io.ErrUnexpectedEOF {
			t.Fatalf("after %d of %d bytes: %v", cut, len(whole), err)
		}
	}
	for _, length := range []uint32{0, headerLen + 12, maxLen + 1, 1 << 31} {
		binary.LittleEndian.PutUint32(whole, length)
		if _, err := NewReader(bytes.NewReader(whole)).Next(); !errors.Is(err, ErrFormat) {
			t.Errorf("a packet that claims %d bytes: %v", length, err)
		}
	}
}
