package interop

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"
	"github.com/ndklab/ndklab/internal/provider/roce"
)

// wire makes sure that everything that has crossed the guest's network card is
// RoCEv2: every ICRC is right, with the IPv4 identification that the packet bore,
// and an independent implementation takes every packet apart.
func (s *setting) wire(t *testing.T) {
	t.Run("ICRC", func(t *testing.T) {
		seen := s.guest.captured(t)
		t.Logf("%+v", seen)
		for _, n := range []int{seen.toGuest.ipv4, seen.toGuest.ipv6, seen.fromGuest.ipv4, seen.fromGuest.ipv6} {
			if n < 1000 {
				t.Errorf("%s holds %+v: fewer than were sent", s.guest.capture, seen)
			}
		}
	})
	t.Run("tshark", s.dissect)
}

// A capture has the findings in a record of the guest's network card. QEMU writes
// a frame there before it hands it on, and so misses none.
type capture struct {
	toGuest, fromGuest packets
	// early and late are requests of the guest that it sent again, less than the
	// timeout after the first time, and later.
	early, late int
	probes      int // to the guest: empty WRITEs, which no program here makes
	apart       int // likewise: WRITEs of 4 KiB, of which a longer one was made
}

// packets are counts of one direction.
type packets struct {
	frames     int // of any kind
	ipv4, ipv6 int // RoCEv2
}

func (p packets) roce() int { return p.ipv4 + p.ipv6 }

// since returns what was captured after an earlier count.
func (c capture) since(before capture) capture {
	return capture{c.toGuest.since(before.toGuest), c.fromGuest.since(before.fromGuest), c.early - before.early, c.late - before.late, c.probes - before.probes, c.apart - before.apart}
}

func (p packets) since(before packets) packets {
	return packets{p.frames - before.frames, p.ipv4 - before.ipv4, p.ipv6 - before.ipv6}
}

// rxeTimeout is the least time that rxe waits for an acknowledgement, on which both
// ends agree (roce.md 12.3).
const rxeTimeout = 537 * time.Millisecond

// captured reads what was recorded so far. Every RoCEv2 packet must have the ICRC
// of what it bears.
func (g guest) captured(t *testing.T) (seen capture) {
	t.Helper()
	file, err := os.Open(g.capture)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	records, err := pcapgo.NewReader(bufio.NewReaderSize(file, 1<<20))
	if err != nil {
		t.Fatalf("%s: %v", g.capture, err)
	}
	type request struct {
		from     netip.Addr
		port     uint16
		qpn, psn uint32
	}
	first := map[request]time.Time{} // when it was sent
	var verifier roce.Verifier
	var p roce.Received
	for number := 1; ; number++ {
		frame, info, err := records.ReadPacketData()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) { // the newest may be half written
			return seen
		}
		if err != nil {
			t.Fatalf("%s, frame %d: %v", g.capture, number, err)
		}
		const source, ethernetLen = 6, 14
		direction := &seen.toGuest
		if bytes.Equal(frame[source:source+len(g.mac)], g.mac) {
			direction = &seen.fromGuest
		}
		direction.frames++
		err = verifier.DecodeIP(frame[ethernetLen:], &p)
		if errors.Is(err, roce.ErrNotRoCE) {
			continue
		}
		if err != nil {
			t.Errorf("%s, frame %d: %v: %x", g.capture, number, err, frame)
			continue
		}
		if p.Flow.Remote.Is4() {
			direction.ipv4++
		} else {
			direction.ipv6++
		}
		if h := &p.Header; direction == &seen.toGuest && h.Opcode == roce.WriteOnly {
			switch h.DMALength {
			case 0:
				seen.probes++
			case 4096:
				seen.apart++
			}
		}
		if direction == &seen.toGuest || !p.Header.Opcode.IsRC() || !p.Header.Opcode.IsRequest() {
			continue
		}
		r := request{p.Flow.Remote, p.Flow.SourcePort, p.Header.DestQPN, p.Header.PSN}
		switch before, again := first[r]; {
		case !again:
			first[r] = info.Timestamp
		case info.Timestamp.Sub(before) < rxeTimeout:
			seen.early++
		default:
			seen.late++
		}
	}
}

// payloadHeuristics are the dissectors that tshark 4.0 tries on payloads of
// InfiniBand packets and on private data, guessing by their bytes.
var payloadHeuristics = []string{
	"drbd_rdma", "eth_over_ib", "fc_infiniband", "iser_ib_private", "iser_infiniband", "lnet_ib", "lnet_ib_cm_private",
	"mellanox_eoib", "nvme_rdma_cm_private", "nvme_rdma", "rpcrdma_infiniband", "sdp_ib_private",
	"sdp_infiniband", "smb_direct_infiniband", "smcr_infiniband",
}

// dissect has tshark take every packet apart, by what the packets say of
// themselves alone: no guessing at payloads.
func (s *setting) dissect(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not installed; continuous integration has it")
	}
	ctx, cancel := context.WithTimeout(context.Background(), commandTime)
	defer cancel()
	args := []string{"-n", "-r", s.guest.capture, "-M", "100000", // forget earlier packets now and then
		"-o", "udp.try_heuristic_first:FALSE", "-Y", "udp.dstport == 4791",
		"-T", "fields", "-e", "frame.number", "-e", "_ws.malformed", "-e", "infiniband.bth.opcode"}
	for _, heuristic := range payloadHeuristics {
		args = append(args, "--disable-heuristic", heuristic)
	}
	cmd := exec.CommandContext(ctx, tshark, args...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir()) // nobody's preferences
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for lines := bufio.NewScanner(out); lines.Scan(); n++ {
		number, rest, _ := strings.Cut(lines.Text(), "\t")
		if malformed, opcode, _ := strings.Cut(rest, "\t"); malformed != "" || opcode == "" {
			t.Errorf("%s, frame %s: tshark calls it malformed (%q), opcode %q", s.guest.capture, number, malformed, opcode)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("tshark: %v: %s", err, &stderr)
	}
	seen := s.guest.captured(t)
	if want := seen.toGuest.roce() + seen.fromGuest.roce(); n != want {
		t.Errorf("tshark takes %d packets apart, %s holds %d", n, s.guest.capture, want)
	}
}
