package lab

import (
	"errors"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/topology"
	"golang.org/x/sys/unix"
)

// Captures at once, of the same interface too, have each the packets that they ask
// for, and nothing of one another.
func TestCapturesAtOnce(t *testing.T) {
	l := start(t, ring(uniqueName(t), 2))
	if err := l.Links.Set(testContext(t), "n0:eth0", "n0", topology.Change{Loss: &topology.Loss{Rate: 1}}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	begin := func(name, iface, filter string, snaplen int) (*recordingRun, string) {
		path := filepath.Join(dir, name)
		return startRecording(t, l, Recording{Capture: topology.Capture{Interfaces: endpoints(iface), File: path, Filter: filter, Snaplen: snaplen}}), path
	}
	all, allPath := begin("all", "n0:eth0", "", 0)
	few, fewPath := begin("few", "n0:eth0", "udp dst port 5001", 50)
	far, farPath := begin("far", "n1:eth0", "udp", 0)
	fire(t, l, 5000, 100)
	fire(t, l, 5001, 101)
	for _, size := range []int{100, 101} {
		volleyIn(t, allPath, size, 0)
	}
	eventually(t, testTime, func() string {
		if packets, _ := readSoFar(t, fewPath); len(packets) == volley {
			return ""
		}
		return "the second capture has not got its packets"
	})
	all.end(t)
	if c := few.end(t)[0]; c.Packets != volley || c.Other < volley {
		t.Errorf("counts %+v", c)
	}
	if c := far.end(t)[0]; c.Packets != 0 {
		t.Errorf("%d packets arrived over a link that loses all", c.Packets)
	}
	readCapture(t, farPath)
	captureMistakes(t, l)
	for i, p := range readCapture(t, fewPath) {
		if p.comment != "dropped: loss" || len(p.frame) != 50 {
			t.Errorf("packet %d: %d bytes, comment %q", i+1, len(p.frame), p.comment)
		}
	}
}

// demanding is more than waits in memory to be written.
const demanding = `
workloads:
  - {name: w, from: client, to: server, operation: write, size: 256KiB, depth: 8, count: 1200}
`

// A reader that reads nothing costs records, which are counted, and no packet of the
// lab.
func TestCaptureStalledReader(t *testing.T) {
	l := start(t, runnable(t, "mtu: 4200", demanding))
	read, write := io.Pipe()
	recording := startRecording(t, l, Recording{Capture: topology.Capture{Interfaces: endpoints("client:eth0")}, Stream: write})
	r := runLab(t, l)
	if w := r.Workloads[0]; w.Errors > 0 || w.Messages != 1200 {
		t.Errorf("%d messages, %d errors", w.Messages, w.Errors)
	}
	for _, d := range r.Links[0].Directions {
		if d.Dropped > 0 || d.Lost > 0 {
			t.Errorf("packets from %s were lost: %+v", d.From, d)
		}
	}
	recording.cancel()
	var packets []capturedPacket
	complete := false
	var reader sync.WaitGroup
	reader.Go(func() { packets, complete = readPackets(t, read) })
	counts := recording.ended(t)[0]
	write.Close()
	reader.Wait()
	if counts.Dropped == 0 || counts.Packets == 0 || uint64(len(packets)) != counts.Packets || !complete {
		t.Errorf("%+v; %d packets were read, complete %v", counts, len(packets), complete)
	}
}

// A reader that goes away ends its capture, and so does a disk that is full, with an error
// that says so, and nothing else.
func TestCaptureReaderGone(t *testing.T) {
	l := start(t, runnable(t, slow, slowWorkload))
	read, write := pipe(t)
	gone := startRecording(t, l, Recording{Capture: topology.Capture{Interfaces: endpoints("client:eth0")}, Stream: write})
	path := filepath.Join(t.TempDir(), "stays")
	stays := startRecording(t, l, Recording{Capture: topology.Capture{Interfaces: endpoints("client:eth0"), File: path}})
	full := startRecording(t, l, Recording{Capture: topology.Capture{Interfaces: endpoints("client:eth0"), File: "/dev/full"}})
	if _, err := read.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	read.Close()
	if r := runLab(t, l); r.Workloads[0].Errors > 0 {
		t.Errorf("run %+v", r)
	}
	if err := gone.wait(t); !errors.Is(err, unix.EPIPE) {
		t.Errorf("error %v, want EPIPE", err)
	}
	err := full.wait(t)
	wantCode(t, err, control.Unable)
	if !strings.Contains(err.Error(), "no space left") {
		t.Errorf("error %v", err)
	}
	if stays.end(t)[0].Packets == 0 {
		t.Error("the other capture has no packets")
	}
	readCapture(t, path)
}

// A capture ends with its node, and with the lab, and is complete.
func TestCaptureEnds(t *testing.T) {
	l := start(t, ring(uniqueName(t), 2))
	dir := t.TempDir()
	lost := make(chan string, 10)
	begin := func(name, iface string) (*recordingRun, string) {
		path := filepath.Join(dir, name)
		return startRecording(t, l, Recording{
			Capture: topology.Capture{Interfaces: endpoints(iface), File: path},
			Lost:    func(endpoint string, reason error) { lost <- endpoint + ": " + reason.Error() },
		}), path
	}
	byNode, nodePath := begin("node", "n1:eth0")
	byLab, labPath := begin("lab", "n0:eth0")
	fire(t, l, 5000, 100)
	act(t, l, "n1", StopNode, nodeDown)
	byNode.ended(t)
	if err := l.Down(testContext(t)); err != nil {
		t.Fatal(err)
	}
	byLab.ended(t)
	if got, want := <-lost, "n1:eth0: node n1 is down: it was stopped"; got != want || len(lost) > 0 {
		t.Errorf("%q, and %d more, want %q", got, len(lost), want)
	}
	for path, least := range map[string]int{nodePath: volley, labPath: volley} {
		if n := len(readCapture(t, path)); n < least {
			t.Errorf("%s has %d packets, want %d at least", path, n, least)
		}
	}
}

func captureMistakes(t *testing.T, l *Lab) {
	t.Helper()
	for _, r := range []topology.Capture{
		{Interfaces: endpoints("n0:eth9"), File: "/dev/null"},
		{Interfaces: endpoints("n9:eth0"), File: "/dev/null"},
		{Interfaces: endpoints("n0:eth0"), File: "/dev/null", Filter: "udp prot 1"},
		{Interfaces: endpoints("n0:eth0"), File: filepath.Join(t.TempDir(), "no", "file")},
		{Interfaces: endpoints("n0:eth0"), File: t.TempDir()},
	} {
		_, err := l.Record(testContext(t), Recording{Capture: r})
		wantCode(t, err, control.Usage)
	}
	if _, err := l.Inspect(testContext(t)); err != nil {
		t.Error(err)
	}
}
