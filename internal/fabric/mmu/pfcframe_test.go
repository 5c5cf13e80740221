package mmu

import (
	"encoding/binary"
	"encoding/hex"
	"os"
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
	b[0] = 0 // 802.3x
	if _, err := DecodePFC(b); err == nil {
		t.Error("a pause of all classes is taken for one of some")
	}
}

// TestPFCFrameIsDissected: Wireshark reads the same.
func TestPFCFrameIsDissected(t *testing.T) {
	need.Check(t, need.Programs("tshark"))
	f := PFC{Enabled: 1<<3 | 1<<6, Quanta: [Classes]uint16{3: 0x1234, 6: 0}}
	frame, err := hex.DecodeString("0180c2000001" + "020000000001" + "8808")
	if err != nil {
		t.Fatal(err)
	}
	frame = f.Append(frame)
	le := binary.LittleEndian
	file := le.AppendUint32(nil, 0xa1b2c3d4) // pcap 2.4, Ethernet
	file = le.AppendUint16(le.AppendUint16(file, 2), 4)
	for _, word := range []uint32{0, 0, 1 << 16, 1, 0, 0, uint32(len(frame)), uint32(len(frame))} {
		file = le.AppendUint32(file, word)
	}
	path := filepath.Join(t.TempDir(), "pfc.pcap")
	if err := os.WriteFile(path, append(file, frame...), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.Command("tshark", "-r", path, "-T", "fields", "-e", "macc.opcode", "-e", "macc.cbfc.enbv",
		"-e", "macc.cbfc.pause_time.c3", "-e", "macc.cbfc.pause_time.c6")
	out, err := command.Output()
	if err != nil {
		t.Fatalf("tshark: %v", err)
	}
	if got := strings.TrimSpace(string(out)); got != "0x0101\t0x0048\t4660\t0" {
		t.Errorf("tshark reads %q", got)
	}
}
