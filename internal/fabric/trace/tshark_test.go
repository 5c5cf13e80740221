package trace

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/ndklab/ndklab/internal/need"
	"github.com/ndklab/ndklab/internal/provider/roce"
)

// Rows of packets that Linux sent (internal/provider/roce), and of one of each opcode, have the lengths, opcodes, PSNs and queue
// pairs that tshark finds.
func TestTshark(t *testing.T) {
	need.Check(t, need.Programs("tshark"))
	files, err := filepath.Glob("../../provider/roce/testdata/captures/*.pcap")
	if err != nil || len(files) < 10 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range append(files, everyOpcode(t)) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			want := tshark(t, file)
			var got []string
			for _, row := range rowsOf(t, file) {
				text := fmt.Sprintf("%d", row.Size)
				if row.Opcode != "" {
					text += fmt.Sprintf(" %s %d %d", row.Opcode, *row.PSN, *row.QP)
				}
				got = append(got, text)
			}
			if len(got) != len(want) || len(got) == 0 {
				t.Fatalf("%d rows of %d packets", len(got), len(want))
			}
			for i := range got {
				if got[i] != want[i] {
					t.Errorf("packet %d: %q, tshark says %q", i+1, got[i], want[i])
				}
			}
		})
	}
}

// everyOpcode makes a file with a packet of each opcode that is the IBTA's.
func everyOpcode(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "opcodes.pcap")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	w := pcapgo.NewWriter(file)
	if err := w.WriteFileHeader(1<<16, layers.LinkTypeEthernet); err != nil {
		t.Fatal(err)
	}
	for op := range roce.SelectiveAcknowledge {
		if !op.Known() {
			continue
		}
		p := packet(t, near, 0, "", roce.Header{Opcode: op, PSN: 0xff0000 + uint32(op), DestQPN: 0x123456}, 8)
		if err := w.WritePacket(gopacket.CaptureInfo{CaptureLength: p.Size, Length: p.Size}, p.Frame); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// rowsOf returns the rows of a file, each of whose packets is cut off, as those of captures are.
func rowsOf(t *testing.T, path string) []Row {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	r, err := pcapgo.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	ring := NewRing(1000)
	for {
		frame, info, err := r.ReadPacketData()
		if err != nil {
			return ring.Rows(1000, 0)
		}
		ring.Add(&Packet{Stamp: info.Timestamp.UnixNano(), From: near, Size: info.Length, Frame: frame})
	}
}

// tshark returns what tshark says of each packet.
func tshark(t *testing.T, path string) (all []string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "tshark", "-r", path, "-o", "udp.try_heuristic_first:FALSE", "-T", "fields",
		"-e", "frame.len", "-e", "infiniband.bth.opcode", "-e", "infiniband.bth.psn", "-e", "infiniband.bth.destqp")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("tshark: %v: %s", err, &stderr)
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		text := fields[0]
		if fields[1] != "" {
			opcode, opcodeErr := strconv.ParseUint(fields[1], 0, 8)
			qp, qpErr := strconv.ParseUint(fields[3], 0, 24)
			if opcodeErr != nil || qpErr != nil {
				t.Fatalf("tshark: %q", line)
			}
			text += fmt.Sprintf(" %v %s %d", roce.Opcode(opcode), fields[2], qp)
		}
		all = append(all, text)
	}
	return all
}
