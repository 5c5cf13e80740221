package lab

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/gopacket/gopacket/pcapgo"
	"github.com/ndklab/ndklab/internal/fabric/capture"
	"github.com/ndklab/ndklab/internal/node"
	"github.com/ndklab/ndklab/internal/provider/roce"
)

func init() {
	programs["capture"] = func(args []string) error {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT)
		defer stop()
		socket, err := capture.Open(args[0])
		if err != nil {
			return err
		}
		fmt.Fprintln(os.Stderr, "capturing")
		counts, err := capture.Run(ctx, []capture.Source{{Name: args[0], Socket: socket}}, capture.Stream(os.Stdout), capture.Options{})
		if err == nil && counts[0].Dropped > 0 {
			err = fmt.Errorf("%d frames were missed", counts[0].Dropped)
		}
		return err
	}
}

// TestWire proves that what crosses a link are RoCEv2 packets: an independent
// implementation decodes them, and every ICRC is right with the IPv4
// identification that is really on the wire.
func TestWire(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not installed; continuous integration has it")
	}
	for _, family := range []struct {
		name      string
		addresses [2]string
	}{
		{"IPv4", [2]string{"10.9.0.1/24", "10.9.0.2/24"}},
		{"IPv6", [2]string{"fd00:9::1/64", "fd00:9::2/64"}},
	} {
		t.Run(family.name, func(t *testing.T) {
			file := captureRun(t, family.addresses)
			checkICRCs(t, file)
			checkDecoding(t, tshark, file)
		})
	}
}

// captureRun runs a workload of each kind over a bad link and returns what the
// client's interface saw.
func captureRun(t *testing.T, addresses [2]string) string {
	topo := runnable(t, "mtu: 4200", `
workloads:
  - {name: w, from: client, to: server, operation: write, size: 64KiB, depth: 4, count: 20, verify: true}
  - {name: r, from: client, to: server, operation: read, size: 64KiB, depth: 4, count: 20, verify: true}
  - {name: s, from: client, to: server, operation: send, size: 10001B, depth: 4, count: 20, verify: true}
`)
	for end := range topo.Nodes {
		topo.Nodes[end].Interfaces[0].Addresses = []netip.Prefix{netip.MustParsePrefix(addresses[end])}
	}
	for d := range topo.Links[0].Directions {
		topo.Links[0].Directions[d].Delay = 200_000 // ns
		topo.Links[0].Directions[d].Loss.Rate = 0.02
	}
	l := start(t, topo)
	path := filepath.Join(t.TempDir(), "run.pcapng")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	said, says, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	done := make(chan error, 1)
	go func() {
		cmd := node.Command{ID: "capture", Args: []string{"/proc/self/exe"}, Env: programEnv("capture eth0")}
		status, err := l.Nodes.Exec(testContext(t), "client", cmd, append(nil2(file), says)...)
		if err == nil && status != 0 {
			err = fmt.Errorf("capture exited with status %d", status)
		}
		says.Close()
		done <- err
	}()
	lines := bufio.NewScanner(said)
	if !lines.Scan() || lines.Text() != "capturing" {
		t.Fatalf("capture: %q, %v", lines.Text(), <-done)
	}
	if r := runLab(t, l); !r.Passed {
		t.Fatalf("run %+v", r)
	}
	if err := l.Nodes.Signal(testContext(t), "client", "capture", syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return path
}

// checkICRCs takes every packet of a capture apart with its own identification.
func checkICRCs(t *testing.T, path string) {
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	packets, err := pcapgo.NewNgReader(file, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	var verifier roce.Verifier
	var received roce.Received
	n := 0
	for {
		frame, _, err := packets.ReadPacketData()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		err = verifier.DecodeIP(frame[14:], &received)
		if errors.Is(err, roce.ErrNotRoCE) {
			continue // the kernel's own, such as multicast listener reports
		}
		if err != nil {
			t.Fatalf("packet %d: %v: %x", n+1, err, frame)
		}
		n++
	}
	if n < 20*16*2 {
		t.Errorf("%d packets, fewer than were sent", n)
	}
}

// payloadHeuristics are the dissectors that tshark 4.0 tries on payloads of
// InfiniBand packets and on private data, guessing by their bytes.
var payloadHeuristics = []string{
	"drbd_rdma", "eth_over_ib", "fc_infiniband", "iser_ib_private", "iser_infiniband", "lnet_ib", "lnet_ib_cm_private",
	"mellanox_eoib", "nvme_rdma_cm_private", "nvme_rdma", "rpcrdma_infiniband", "sdp_ib_private",
	"sdp_infiniband", "smb_direct_infiniband", "smcr_infiniband",
}

// checkDecoding has tshark take every packet apart, by what the packets say of
// themselves alone: no guessing at payloads.
func checkDecoding(t *testing.T, tshark, path string) {
	args := []string{"-r", path, "-o", "udp.try_heuristic_first:FALSE", "-Y", "udp.dstport == 4791",
		"-T", "fields", "-E", "separator=,", "-e", "_ws.malformed", "-e", "infiniband.bth.opcode", "-e", "infiniband.mad.attributeid", "-e", "frame.protocols"}
	for _, heuristic := range payloadHeuristics {
		args = append(args, "--disable-heuristic", heuristic)
	}
	cmd := exec.CommandContext(testContext(t), tshark, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("tshark: %v: %s", err, stderr.Bytes())
	}
	opcodes, attributes := map[roce.Opcode]int{}, map[uint64]int{}
	for number, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		fields := strings.Split(line, ",")
		if fields[0] != "" || !strings.Contains(fields[3], "infiniband") {
			t.Fatalf("packet %d: tshark calls it %q", number+1, line)
		}
		opcode, err := strconv.ParseUint(fields[1], 0, 8)
		if err != nil {
			t.Fatalf("packet %d: %v", number+1, err)
		}
		opcodes[roce.Opcode(opcode)]++
		if fields[2] != "" {
			attribute, err := strconv.ParseUint(fields[2], 0, 16)
			if err != nil {
				t.Fatalf("packet %d: %v", number+1, err)
			}
			attributes[attribute]++
		}
	}
	for _, opcode := range []roce.Opcode{roce.WriteFirst, roce.WriteMiddle, roce.WriteLast, roce.SendFirst, roce.SendMiddle,
		roce.SendLast, roce.SendOnly, roce.ReadRequest, roce.ReadResponseFirst, roce.ReadResponseLast,
		roce.Acknowledge, roce.UDSendOnly} {
		if opcodes[opcode] == 0 {
			t.Errorf("no packet is a %v", opcode)
		}
	}
	// REQ, REP, RTU, DREQ and DREP, of three connections.
	for _, attribute := range []uint64{0x10, 0x13, 0x14, 0x15, 0x16} {
		if attributes[attribute] < 3 {
			t.Errorf("%d datagrams have attribute %#x", attributes[attribute], attribute)
		}
	}
}
