package lab

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/topology"
	"golang.org/x/sys/unix"
)

// startRecorded starts a lab with captures, and returns where what is said of those
// goes.
func startRecorded(t *testing.T, topo *topology.Topology) (*Lab, <-chan event.Event) {
	t.Helper()
	said := make(chan event.Event, 100)
	l := startWith(t, topo, Options{Hosts: os.Getenv("NDKLAB_TEST_HOSTS"), Events: func(e event.Event) {
		if e.Kind == event.Captured || e.Kind == event.Warning {
			said <- e
		}
	}})
	return l, said
}

// taken checks a file that recorded a whole run of slowWorkload at the client.
func taken(t *testing.T, path string) {
	t.Helper()
	opcodes := map[roce.Opcode]bool{}
	dropped := 0
	var verifier roce.Verifier
	var received roce.Received
	for i, p := range readCapture(t, path) {
		err := verifier.DecodeIP(p.frame[14:], &received)
		if errors.Is(err, roce.ErrNotRoCE) {
			continue
		}
		if err != nil {
			t.Fatalf("packet %d: %v", i+1, err)
		}
		opcodes[received.Header.Opcode] = true
		if p.comment == "dropped: loss" {
			dropped++
		}
	}
	for _, o := range []roce.Opcode{roce.WriteFirst, roce.Acknowledge, roce.UDSendOnly} { // from connecting to the end
		if !opcodes[o] {
			t.Errorf("no packet is a %v", o)
		}
	}
	if dropped == 0 {
		t.Error("no packet was dropped")
	}
}

// The files of a topology's captures are complete when the lab is down, have every packet
// of the workloads, and are what the summaries say.
func TestTopologyCaptures(t *testing.T) {
	dir := t.TempDir()
	wire, named, ring := filepath.Join(dir, "link.pcapng"), filepath.Join(dir, "named.pcapng"), filepath.Join(dir, "ring.pcapng")
	l, said := startRecorded(t, runnable(t, slow+", capture: "+wire, slowWorkload+`
capture:
  - {link: "server:eth0", file: `+named+`}
  - {interfaces: ["server:eth0"], file: `+ring+`, filter: "udp port 4791", ring: {size: 64KiB, files: 3}}
  - {interfaces: ["client:eth0"], file: /dev/full}
`))
	if r := runLab(t, l); r.Workloads[0].Errors > 0 {
		t.Errorf("run %+v", r)
	}
	if err := l.Down(testContext(t)); err != nil {
		t.Fatal(err)
	}
	var summaries []string
	full := false // a disk that is full ends a capture with a warning; the run goes on
	for len(said) > 0 {
		e := <-said
		t.Log(e.Text)
		full = full || e.Kind == event.Warning && strings.Contains(e.Text, "capture /dev/full ends early: ") && strings.Contains(e.Text, "no space left")
		for _, path := range []string{wire, named, ring} {
			for _, end := range []string{"client:eth0", "server:eth0"} {
				if e.Kind == event.Captured && strings.HasPrefix(e.Text, "capture "+path+": "+end+": packets: ") {
					summaries = append(summaries, path+" "+end)
				}
			}
		}
	}
	if !full {
		t.Error("no warning was given")
	}
	if len(summaries) != 5 {
		t.Errorf("summaries of %v, want one of each file and interface", summaries)
	}
	taken(t, wire)
	taken(t, named)
	files, err := filepath.Glob(filepath.Join(dir, "ring_*.pcapng"))
	if err != nil || len(files) != 3 {
		t.Errorf("the ring has %v, %v; want 3 files", files, err)
	}
	for _, path := range files {
		if len(readCapture(t, path)) == 0 {
			t.Errorf("%s has no packets", path)
		}
	}
}

// A lab that outlives the command that started it is captured to its end; whoever
// takes it down finds the files complete.
func TestTopologyCapturesOfUp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "link.pcapng")
	topo := runnable(t, slow+", capture: "+path, slowWorkload)
	owner := start(t, topo)
	if err := owner.Release(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if err := owner.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := Open(testContext(t), topo.Name)
	if err != nil {
		t.Fatal(err)
	}
	if r := runLab(t, l); r.Workloads[0].Errors > 0 {
		t.Errorf("run %+v", r)
	}
	if err := l.Down(testContext(t)); err != nil {
		t.Fatal(err)
	}
	taken(t, path)
}

// A capture that cannot begin is the lab's failure to start, and nothing is left.
func TestTopologyCaptureUnwritable(t *testing.T) {
	topo := runnable(t, "mtu: 4200, capture: "+filepath.Join(t.TempDir(), "no", "file.pcapng"), "")
	_, err := Start(testContext(t), topo, Options{})
	wantCode(t, err, control.Usage)
	if rest := remains(t, topo.Name); rest != "" {
		t.Error(rest)
	}
}

// A lab whose supervisor is killed has its captures whole, up to then: those that the
// topology asks for and others.
func TestCapturesOfKilledLab(t *testing.T) {
	dir := t.TempDir()
	wire, other := filepath.Join(dir, "wire.pcapng"), filepath.Join(dir, "other.pcapng")
	topo := runnable(t, slow+", capture: "+wire, slowWorkload)
	l, _ := startRecorded(t, topo)
	recording := startRecording(t, l, Recording{Capture: topology.Capture{Interfaces: endpoints("server:eth0"), File: other}})
	if r := runLab(t, l); r.Workloads[0].Errors > 0 {
		t.Errorf("run %+v", r)
	}
	long := topo.Workloads[0]
	long.Name, long.Count, long.Duration = "long", 0, 10*time.Minute
	var run sync.WaitGroup
	run.Go(func() {
		if _, err := l.RunWorkloads(testContext(t), long); err == nil { // in the middle of which it is killed
			t.Error("a killed lab's run ended well")
		}
	})
	kill(t, processOf(t, topo.Name, "ndklab-supervisor"))
	run.Wait()
	recording.ended(t)
	eventually(t, testTime, func() string { return remains(t, topo.Name) })
	taken(t, wire)
	if len(readCapture(t, other)) == 0 {
		t.Error("nothing was captured")
	}
}

// A capture to a pipe that nobody reads does not keep the lab from ending.
func TestTopologyCaptureNobodyReads(t *testing.T) {
	t.Parallel() // it waits
	path := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	l, said := startRecorded(t, runnable(t, slow+", capture: "+path, slowWorkload)) // more than a pipe holds
	if r := runLab(t, l); r.Workloads[0].Errors > 0 {
		t.Errorf("run %+v", r)
	}
	if err := l.Down(testContext(t)); err != nil {
		t.Fatal(err)
	}
	for len(said) > 0 {
		if e := <-said; e.Kind == event.Warning && strings.Contains(e.Text, "takes no more") {
			return
		}
	}
	t.Error("no warning was given")
}
