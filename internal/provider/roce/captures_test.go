package roce

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const captures = "testdata/captures"

// captured says what each capture holds, by its README.md: packets by opcode
// and, of acknowledgements that refuse, syndrome.
var captured = map[string]map[string]int{
	"rping": {
		"UD SEND Only": 5, "RC SEND Only": 40, "RC Acknowledge": 50,
		"RC RDMA READ Request": 10, "RC RDMA READ Response Only": 10, "RC RDMA WRITE Only": 10,
	},
	"rping-large": {
		"UD SEND Only": 5, "RC SEND Only": 4, "RC Acknowledge": 5, "RC RDMA READ Request": 1,
		"RC RDMA READ Response First": 1, "RC RDMA READ Response Middle": 1, "RC RDMA READ Response Last": 1,
		"RC RDMA WRITE First": 1, "RC RDMA WRITE Middle": 1, "RC RDMA WRITE Last": 1,
	},
	"rping-ipv6": {
		"UD SEND Only": 5, "RC SEND Only": 8, "RC Acknowledge": 10,
		"RC RDMA READ Request": 2, "RC RDMA READ Response Only": 2, "RC RDMA WRITE Only": 2,
	},
	"send":            {"RC SEND Only": 5, "RC Acknowledge": 5},
	"send-fragmented": {"RC SEND First": 5, "RC SEND Middle": 5, "RC SEND Last": 5, "RC Acknowledge": 5},
	"write": {
		"RC RDMA WRITE First": 5, "RC RDMA WRITE Middle": 5, "RC RDMA WRITE Last": 5, "RC Acknowledge": 5,
	},
	"read": {
		"RC RDMA READ Request": 5, "RC RDMA READ Response First": 5,
		"RC RDMA READ Response Middle": 5, "RC RDMA READ Response Last": 5,
	},
	"atomic-fetch-add": {"RC Fetch Add": 5, "RC Atomic Acknowledge": 5},
	"atomic-cmp-swap":  {"RC Compare Swap": 5, "RC Atomic Acknowledge": 5},
	"disconnect":       {"UD SEND Only": 5, "RC SEND Only": 2, "RC Acknowledge": 2},
	"reject":           {"UD SEND Only": 2},
	"ud-send":          {"UD SEND Only": 2, "UD SEND Only Immediate": 4},
	"immediate":        {"RC SEND Only Immediate": 1, "RC RDMA WRITE Only Immediate": 1, "RC Acknowledge": 2},
	"rnr-nak":          {"RC SEND Only": 5, "RC Acknowledge: RNR NAK 81.92ms": 4, "RC Acknowledge": 1},
	"nak-access":       {"RC RDMA WRITE Only": 1, "RC Acknowledge: NAK remote access error": 1},
	"nak-length":       {"RC SEND Only": 1, "RC Acknowledge: NAK remote operational error": 1},
	"nak-sequence":     {"RC SEND Only": 25, "RC Acknowledge": 10, "RC Acknowledge: NAK PSN sequence error": 3},
}

// readmeCounts are the numbers of packets in README.md's table, by file.
func readmeCounts(t *testing.T) map[string]int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(captures, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for _, row := range regexp.MustCompile(`(?m)^\| ([a-z0-9-]+) \| (\d+) \|`).FindAllSubmatch(text, -1) {
		counts[string(row[1])], err = strconv.Atoi(string(row[2]))
		if err != nil {
			t.Fatal(err)
		}
	}
	return counts
}

// received is every packet of a capture, decoded, with the bytes as they were.
type received struct {
	Received
	wire []byte
}

func readCapture(t *testing.T, name string) []received {
	t.Helper()
	var v Verifier
	var packets []received
	for i, wire := range readPcap(t, filepath.Join(captures, name+".pcap")) {
		p := received{wire: wire}
		if err := v.DecodeIP(wire, &p.Received); err != nil {
			t.Fatalf("packet %d: %v", i, err)
		}
		packets = append(packets, p)
	}
	return packets
}

// TestCaptures decodes what a Linux kernel sent, checks that it is what the
// README says, and encodes it again to the same bytes.
func TestCaptures(t *testing.T) {
	counts := readmeCounts(t)
	files, err := filepath.Glob(captures + "/*.pcap")
	if err != nil || len(files) != len(captured) || len(counts) != len(captured) {
		t.Fatalf("%d files, %d rows in README.md, %d known here (%v)", len(files), len(counts), len(captured), err)
	}
	for name, want := range captured {
		t.Run(name, func(t *testing.T) {
			packets := readCapture(t, name)
			if len(packets) != counts[name] {
				t.Errorf("%d packets, README.md says %d", len(packets), counts[name])
			}
			got := map[string]int{}
			var s Sealer
			var v Verifier
			for i, p := range packets {
				key := p.Header.Opcode.String()
				if p.Header.Opcode.HasAETH() && p.Header.Syndrome != SyndromeACK {
					key = fmt.Sprintf("%v: %v", p.Header.Opcode, p.Header.Syndrome)
				}
				got[key]++

				var id uint16
				if p.wire[0]>>4 == 4 {
					id = binary.BigEndian.Uint16(p.wire[4:])
				}
				f := sender(p.Flow)
				again := s.AppendIP(nil, &f, id, &Packet{Header: p.Header, Payload: [][]byte{p.Payload}})
				if !bytes.Equal(again, p.wire) {
					t.Errorf("packet %d\n got %x\nwant %x", i, again, p.wire)
				}
				// The part of it that a UDP socket would show is enough to find the ID.
				udpPayload := p.wire[ipHeaderLen(p.wire)+udpLen:]
				if found, ok := v.Verify(&p.Flow, udpPayload, 0); !ok || found != id {
					t.Errorf("packet %d: Verify says %#x, %v; want %#x", i, found, ok, id)
				}

				if p.Header.MigReq || p.Header.PKey != DefaultPKey || p.Header.FECN || p.Header.BECN || p.Flow.SourcePort < 0xC000 {
					t.Errorf("packet %d: not as README.md says of all: %+v", i, p.Header)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("packets (-want +got):\n%s", diff)
			}
		})
	}
}

// TestCapturedFields checks what the README says of single fields.
func TestCapturedFields(t *testing.T) {
	each := func(name string, check func(t *testing.T, i int, p received)) {
		t.Run(name, func(t *testing.T) {
			for i, p := range readCapture(t, name) {
				check(t, i, p)
			}
		})
	}
	equal := func(t *testing.T, i int, what string, got, want uint64) {
		t.Helper()
		if got != want {
			t.Errorf("packet %d: %s %#x, want %#x", i, what, got, want)
		}
	}

	each("immediate", func(t *testing.T, i int, p received) {
		switch p.Header.Opcode {
		case SendOnlyImm:
			equal(t, i, "immediate", uint64(p.Header.Immediate), 0x01020304)
		case WriteOnlyImm:
			equal(t, i, "immediate", uint64(p.Header.Immediate), 0x0A0B0C0D)
			equal(t, i, "DMA length", uint64(p.Header.DMALength), uint64(len(p.Payload)))
		}
	})
	each("atomic-fetch-add", func(t *testing.T, i int, p received) {
		if p.Header.Opcode == FetchAdd {
			equal(t, i, "addend", p.Header.SwapAdd, 1)
			equal(t, i, "address modulo 8", p.Header.VA%8, 0)
		}
	})
	each("ud-send", func(t *testing.T, i int, p received) {
		if p.Header.Opcode == UDSendOnly { // SIDR_REQ and SIDR_REP, on the general services interface
			equal(t, i, "Q_Key", uint64(p.Header.QKey), 0x80010000)
			equal(t, i, "source QPN", uint64(p.Header.SourceQPN), 1)
			equal(t, i, "destination QPN", uint64(p.Header.DestQPN), 1)
			equal(t, i, "length of MAD", uint64(len(p.Payload)), 256)
		} else {
			equal(t, i, "Q_Key", uint64(p.Header.QKey), 0x01234567)
			equal(t, i, "immediate is the sender's QPN: immediate", uint64(p.Header.Immediate), uint64(p.Header.SourceQPN))
			equal(t, i, "length", uint64(len(p.Payload)), 64)
		}
	})
	for _, name := range []string{"send-fragmented", "write", "read"} {
		each(name, func(t *testing.T, i int, p received) {
			if p.Header.Opcode == Acknowledge || p.Header.Opcode == ReadRequest {
				return
			}
			want := uint64(1024)
			if p.Header.Opcode.IsLast() {
				want = 953
			}
			equal(t, i, "length", uint64(len(p.Payload)), want)
			// rxe asks for an acknowledgement with each last packet of a request.
			if asks := p.Header.Opcode.IsRequest() && p.Header.Opcode.Ends(); p.Header.AckReq != asks {
				t.Errorf("packet %d: AckReq is %v", i, p.Header.AckReq)
			}
		})
	}
	each("rnr-nak", func(t *testing.T, i int, p received) {
		if p.Header.Opcode == Acknowledge && p.Header.Syndrome.IsRNR() {
			equal(t, i, "timer code", uint64(p.Header.Syndrome.RNRCode()), 26)
		}
	})
}
