package mmu

import (
	"encoding/hex"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ndklab/ndklab/internal/need"
)

// TestPFCFrame: the bytes are those of roce.md 14.4.
func TestPFCFrame(t *testing.T) {
	f := PFC{Enabled: 1<<3 | 1<<6, Quanta: [Classes]uint16{3: 0xffff, 6: 0}}
	want := "0101" + "0048" + "000000000000ffff0000000000000000" + strings.Repeat("00", 26)
	b := f.Append(nil)
	if got := hex.EncodeToString(b); got != want || len(b) != PFCFrameLen {
		t.Errorf("%d bytes %s, want %s", len(b), got, want)
	}
	for _, n := range []int{pfcLen, PFCFrameLen} {
		if got, err := DecodePFC(b[:n]); err != nil || got != f {
			t.Errorf("%d bytes: %+v, %v, want %+v", n, got, err, f)
		}
	}
	b[2] = 0xff // reserved
	if got, err := DecodePFC(b); err != nil || got != f {
		t.Errorf("with reserved bits: %+v, %v", got, err)
	}
	if _, err := DecodePFC(b[:pfcLen-1]); err == nil {
		t.Error("a frame is decoded that ends early")
	}
	b[1] = 1 // 802.3x
	if _, err := DecodePFC(b); err == nil {
		t.Error("a pause of all classes is taken for one of some")
	}
}
