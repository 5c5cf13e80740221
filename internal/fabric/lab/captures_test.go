package lab

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/ndklab/ndklab/internal/fabric/capture"
	"github.com/ndklab/ndklab/topology"
	"golang.org/x/sys/unix"
)

// A capturedPacket is one in a file.
type capturedPacket struct {
	iface   string
	about   string // the interface
	at      time.Time
	comment string
	frame   []byte
}

// readPackets reads a capture as far as it is written, and reports whether it ends
// with the counts of each interface, and those are right.
func readPackets(t *testing.T, file io.Reader) (packets []capturedPacket, complete bool) {
	t.Helper()
	r, err := pcapgo.NewNgReader(file, pcapgo.DefaultNgReaderOptions)
	if err == io.EOF {
		return nil, false
	}
	if err != nil {
		t.Fatal(err)
	}
	received := map[string]uint64{}
	for {
		frame, info, options, err := r.ReadPacketDataWithOptions()
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			complete = err == io.EOF
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		iface, err := r.Interface(info.InterfaceIndex)
		if err != nil {
			t.Fatal(err)
		}
		received[iface.Name]++
		packets = append(packets, capturedPacket{iface.Name, iface.Description, info.Timestamp, strings.Join(options.Comments, "; "), frame})
	}
	for i := range r.NInterfaces() {
		iface, err := r.Interface(i)
		if err != nil {
			t.Fatal(err)
		}
		n := iface.Statistics.PacketsReceived // also those that it did not take
		complete = complete && n != pcapgo.NgNoValue64 && n >= received[iface.Name]
	}
	return packets, complete
}

// readCapture reads a file, which has to be complete.
func readCapture(t *testing.T, path string) []capturedPacket {
	t.Helper()
	packets, complete := readSoFar(t, path)
	if !complete {
		t.Errorf("%s is not complete", path)
	}
	return packets
}

func readSoFar(t *testing.T, path string) (packets []capturedPacket, complete bool) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return readPackets(t, bytes.NewReader(data))
}

// A recordingRun is a recording that has begun.
type recordingRun struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when it has ended
	counts []capture.Counts
	err    error // valid when done is closed
}

func startRecording(t *testing.T, l *Lab, r Recording) *recordingRun {
	t.Helper()
	ctx, cancel := context.WithCancel(testContext(t))
	run := &recordingRun{cancel: cancel, done: make(chan struct{})}
	began := make(chan struct{})
	r.Began = func() { close(began) }
	go func() {
		defer close(run.done)
		run.counts, run.err = l.Record(ctx, r)
	}()
	t.Cleanup(func() {
		cancel()
		<-run.done
	})
	select {
	case <-began:
	case <-run.done:
		t.Fatal(run.err)
	}
	return run
}

// wait waits for a recording's end.
func (r *recordingRun) wait(t *testing.T) error {
	t.Helper()
	select {
	case <-r.done:
	case <-time.After(testTime):
		t.Fatal("the recording does not end")
	}
	return r.err
}

// ended waits for an end that is none of an error.
func (r *recordingRun) ended(t *testing.T) []capture.Counts {
	t.Helper()
	if err := r.wait(t); err != nil {
		t.Fatal(err)
	}
	return r.counts
}

// end ends a recording.
func (r *recordingRun) end(t *testing.T) []capture.Counts {
	t.Helper()
	r.cancel()
	return r.ended(t)
}

func endpoints(names ...string) (all []topology.Endpoint) {
	for _, name := range names {
		nodeName, iface, _ := strings.Cut(name, ":")
		all = append(all, topology.Endpoint{Node: nodeName, Interface: iface})
	}
	return all
}

// volley is the number of packets that the program of that name sends as one super-packet.
const volley = 8

func init() {
	// volley ADDRESS SIZE: packets of SIZE bytes of UDP payload each, which is zeros,
	// and may be marked (ECT).
	programs["volley"] = func(args []string) error {
		size, err := integers(args[1:])
		if err != nil {
			return err
		}
		conn, err := net.Dial("udp", args[0])
		if err != nil {
			return err
		}
		defer conn.Close()
		oob := make([]byte, unix.CmsgSpace(2)+unix.CmsgSpace(4))
		segment := (*unix.Cmsghdr)(unsafe.Pointer(&oob[0]))
		segment.Level, segment.Type = unix.SOL_UDP, unix.UDP_SEGMENT
		segment.SetLen(unix.CmsgLen(2))
		binary.NativeEndian.PutUint16(oob[unix.CmsgLen(0):], uint16(size[0]))
		tos := oob[unix.CmsgSpace(2):]
		header := (*unix.Cmsghdr)(unsafe.Pointer(&tos[0]))
		header.Level, header.Type = unix.IPPROTO_IP, unix.IP_TOS
		header.SetLen(unix.CmsgLen(4))
		binary.NativeEndian.PutUint32(tos[unix.CmsgLen(0):], 2)
		_, _, err = conn.(*net.UDPConn).WriteMsgUDP(make([]byte, volley*size[0]), oob, nil)
		return err
	}
}

// fire sends a volley from n0 to n1. Its packets are those of that size in a capture.
func fire(t *testing.T, l *Lab, port, size int) {
	t.Helper()
	program(t, l, "n0", fmt.Sprintf("volley 10.0.0.2:%d %d", port, size)).wait(t)
}

// volleyIn waits until a file that is being written has all packets of a volley from
// n0, and so many at n1. It returns the comments at n0; packets at n1 have none.
func volleyIn(t *testing.T, path string, size, arrive int) (comments []string) {
	t.Helper()
	eventually(t, testTime, func() string {
		comments = nil
		arrived := 0
		all, _ := readSoFar(t, path)
		for _, p := range all {
			if len(p.frame) != 42+size {
				continue
			}
			if p.iface == "n0:eth0" {
				comments = append(comments, p.comment)
			} else if arrived++; p.comment != "" {
				t.Fatalf("a packet that arrived has the comment %q", p.comment)
			}
		}
		if len(comments) == volley && (arrived == arrive || arrive < 0) {
			return ""
		}
		return fmt.Sprintf("%d packets left n0, %d arrived at n1; want %d and %d", len(comments), arrived, volley, arrive)
	})
	return comments
}

// A packet's comment is the decision of the engine on it, also of one that never arrives.
func TestCaptureComments(t *testing.T) {
	l := start(t, ring(uniqueName(t), 2))
	path := filepath.Join(t.TempDir(), "both.pcapng")
	recording := startRecording(t, l, Recording{Capture: topology.Capture{Interfaces: endpoints("n0:eth0", "n1:eth0"), File: path}})
	const delay = 5 * time.Millisecond
	every := func(comment string) []string {
		return strings.Split(strings.Repeat(comment+"|", volley-1)+comment, "|")
	}
	for i, step := range []struct {
		change topology.Change
		arrive int      // at n1; -1: as it happens
		want   []string // "": as it happens, as what stands for dots
	}{
		{topology.Change{Loss: &topology.Loss{Rate: 1}}, 0, every("dropped: loss")},
		{topology.Change{Loss: &topology.Loss{Rate: 0.99, Burst: 100000}}, 0, every("dropped: loss (burst)")},
		{topology.Change{Loss: &topology.Loss{Every: 1}}, 0, every("dropped: loss (every n-th)")},
		{topology.Change{Loss: &topology.Loss{Packets: upTo(100)}}, 0, every("dropped: loss (chosen packet)")},
		{topology.Change{Cut: ref(true)}, 0, every("dropped: cut")},
		{topology.Change{Flap: &topology.Flap{Period: time.Hour, Down: time.Hour - 1}}, 0, every("dropped: flap")},
		{topology.Change{Faults: &[]topology.Fault{
			{Match: topology.Match{Opcodes: []uint8{17}}, Action: topology.Drop},
			{Match: topology.Match{Opcodes: []uint8{0}}, Action: topology.Drop},
		}}, 0, every("dropped: fault 2")},
		{topology.Change{Delay: ref(delay)}, volley, every("delayed 5ms")},
		{topology.Change{Delay: ref(delay), Duplicate: ref(1.0)}, 2 * volley, every("duplicated, delayed 5ms")},
		{topology.Change{Delay: ref(delay), Corrupt: &topology.Corrupt{Probability: 1}}, volley, every("corrupted, delayed 5ms")},
		{topology.Change{Delay: ref(delay), Faults: &[]topology.Fault{{Match: topology.Match{Opcodes: []uint8{0}}, Action: topology.Double}}}, 2 * volley,
			every("duplicated, fault 1, delayed 5ms")},
		{topology.Change{Faults: &[]topology.Fault{{Match: topology.Match{Opcodes: []uint8{0}}, Action: topology.Postpone, Delay: delay}}}, volley,
			every("postponed by 5ms, fault 1, delayed 5ms")},
		{topology.Change{Rate: ref[uint64](1e6), Queue: &topology.Queue{Packets: 100}, ECN: &topology.ECN{Min: 1, Max: 2}}, volley, append([]string{""}, every("marked, delayed ...")[1:]...)},
		{topology.Change{Rate: ref[uint64](1e6), Queue: &topology.Queue{Packets: 3}}, -1, []string{7: "dropped: queue full"}},
		{topology.Change{Delay: ref(delay), Reorder: &topology.Reorder{Probability: 1}}, volley, append([]string{""}, every("reordered, delayed 5ms")[1:]...)},
	} {
		if err := l.Links.Set(testContext(t), "n0:eth0", "n0", step.change); err != nil {
			t.Fatal(err)
		}
		size := 100 + i
		fire(t, l, 4791, size)
		got := volleyIn(t, path, size, step.arrive)
		t.Logf("%s: %s", step.change, strings.Join(got, " | "))
		for j, want := range step.want {
			if rough, ok := strings.CutSuffix(want, "..."); got[j] != want && !(ok && strings.HasPrefix(got[j], rough)) && want != "" {
				t.Errorf("%s: packet %d has the comment %q, want %q", step.change, j+1, got[j], want)
			}
		}
		if err := l.Links.Reset(testContext(t), "n0:eth0", ""); err != nil {
			t.Fatal(err)
		}
	}
	for i, c := range recording.end(t) {
		if c.Dropped > 0 || c.Fateless > 0 {
			t.Errorf("interface %d: %+v", i, c)
		}
	}
	readCapture(t, path)
}

func upTo(n uint64) (all []uint64) {
	for i := range n {
		all = append(all, i+1)
	}
	return all
}

// slow is a link that a capture keeps up with on any machine, and that loses packets.
const slow = "rate: 50mbit, delay: 200us, loss: 5%"

const slowWorkload = `
workloads:
  - {name: w, from: client, to: server, operation: write, size: 64KiB, depth: 4, count: 40, verify: true}
`

// As many packets of a workload are said to be dropped as the engine counts, and none
// is without a comment.
func TestCaptureTellsOfAWorkload(t *testing.T) {
	l := start(t, runnable(t, slow, slowWorkload))
	path := filepath.Join(t.TempDir(), "both.pcapng")
	engine, whole := captureWorkload(t, l, path)
	for !whole { // on a machine that was too busy
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l = start(t, runnable(t, slow, slowWorkload)) // whose engine has not been late yet
		engine, whole = captureWorkload(t, l, path)
	}
	dropped, silent := map[string]uint64{"client:eth0": 0, "server:eth0": 0}, 0
	for _, p := range readCapture(t, path) {
		mine := p.iface == "client:eth0" && p.frame[11] == 0 || p.iface == "server:eth0" && p.frame[11] == 1 // the address ends with the link's end
		switch {
		case !mine && p.comment != "":
			t.Fatalf("a packet that arrived at %s has the comment %q", p.iface, p.comment)
		case mine && p.comment == "dropped: loss":
			dropped[p.iface]++
		case mine && p.comment == "":
			silent++
		}
	}
	if diff := cmp.Diff(engine, dropped); diff != "" {
		t.Errorf("packets that have the comment (-dropped by the engine +commented):\n%s", diff)
	}
	if silent > 0 {
		t.Errorf("%d packets have no comment", silent)
	}
}

// captureWorkload captures both ends while the lab's workload runs. It returns how
// many packets the engine dropped meanwhile, by who sent them, and whether the capture
// has all packets with their comments: it does not wait for those of an engine that gets no
// processor.
func captureWorkload(t *testing.T, l *Lab, path string) (dropped map[string]uint64, whole bool) {
	t.Helper()
	const tooLate = 150_000 // us, far more than packets wait for the rate
	late := false
	dropped = map[string]uint64{}
	count := func(sign uint64) {
		inspection, err := l.Inspect(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range inspection.Links[0].Directions {
			dropped[d.From] += sign * d.Dropped
			late = late || len(d.Delays) > 0 && d.Delays[len(d.Delays)-1].FromUS > tooLate
		}
	}
	count(^uint64(0)) // -1
	recording := startRecording(t, l, Recording{Capture: topology.Capture{Interfaces: endpoints("client:eth0", "server:eth0"), File: path}})
	if r := runLab(t, l); r.Workloads[0].Errors > 0 {
		t.Fatalf("run %+v", r)
	}
	count(1)
	whole = !late
	for _, c := range recording.end(t) {
		whole = whole && c.Dropped == 0 && c.Fateless == 0
	}
	return dropped, whole
}

// A capture goes on while its link moves from the kernel to the engine and back, and is
// taken down and up, and tells what the engine decides whenever that has the link.
func TestCaptureFollowsTheLink(t *testing.T) {
	l := start(t, ring(uniqueName(t), 2))
	path := filepath.Join(t.TempDir(), "both.pcapng")
	recording := startRecording(t, l, Recording{Capture: topology.Capture{Interfaces: endpoints("n0:eth0", "n1:eth0"), File: path}})
	size := 100
	step := func(change topology.Change, engine, want string) {
		t.Helper()
		if err := l.Links.Set(testContext(t), "n0:eth0", "", change); err != nil {
			t.Fatal(err)
		}
		if got := firstLink(t, l).Engine; got != engine {
			t.Fatalf("engine %s, want %s", got, engine)
		}
		size++
		fire(t, l, 5000, size)
		for i, got := range volleyIn(t, path, size, volley) {
			if got != want {
				t.Errorf("%s: packet %d has the comment %q, want %q", change, i+1, got, want)
			}
		}
	}
	for range 2 {
		step(topology.Change{}, "plain", "")
		step(topology.Change{Delay: ref(3 * time.Millisecond)}, "linkem", "delayed 3ms")
		step(topology.Change{Delay: ref(4 * time.Millisecond)}, "linkem", "delayed 4ms")
		if err := l.Links.Down(testContext(t), "n0:eth0"); err != nil {
			t.Fatal(err)
		}
		if err := l.Links.Up(testContext(t), "n0:eth0"); err != nil {
			t.Fatal(err)
		}
		step(topology.Change{}, "linkem", "delayed 4ms")
		step(topology.Change{Delay: ref(time.Duration(0))}, "plain", "")
	}
	recording.end(t)
	readCapture(t, path)
}

// The port of a switch is an interface like others: what it sends has the link's
// decisions.
func TestCaptureWhereNoHostIs(t *testing.T) {
	f := star(uniqueName(t), 2)
	f.Links[0].Directions[0].Loss.Every = 1 // to h0
	l := start(t, f.Topology)
	path := filepath.Join(t.TempDir(), "ports.pcapng")
	recording := startRecording(t, l, Recording{Capture: topology.Capture{Interfaces: endpoints("sw:p0", "sw:p1", "h0:eth0"), File: path}})
	const size = 300
	program(t, l, "h1", fmt.Sprintf("volley 10.7.0.1:4791 %d", size)).wait(t)
	want := map[string]int{"sw:p0 dropped: loss (every n-th)": volley, "sw:p1 ": volley}
	eventually(t, testTime, func() string {
		got := map[string]int{}
		packets, _ := readSoFar(t, path)
		for _, p := range packets {
			if len(p.frame) == 42+size {
				got[p.iface+" "+p.comment]++
			}
		}
		return cmp.Diff(want, got)
	})
	recording.end(t)
	readCapture(t, path)
}

// An end outside the lab can be captured, too.
func TestCaptureOutside(t *testing.T) {
	topo := ring(uniqueName(t), 2)
	withExternal(topo)
	l := start(t, topo)
	path := filepath.Join(t.TempDir(), "outside.pcapng")
	recording := startRecording(t, l, Recording{Capture: topology.Capture{Interfaces: endpoints("external:" + outsideName), File: path}})
	program(t, l, "n0", "send "+outsideAddr+":5000 1 1 1000").wait(t)
	eventually(t, testTime, func() string { // n0 asks who that is
		packets, _ := readSoFar(t, path)
		for _, p := range packets {
			if binary.BigEndian.Uint16(p.frame[12:]) == unix.ETH_P_ARP {
				return ""
			}
		}
		return fmt.Sprintf("%d packets, none of ARP", len(packets))
	})
	recording.end(t)
	readCapture(t, path)
}
