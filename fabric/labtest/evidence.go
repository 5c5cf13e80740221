package labtest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/fabric/lab"
	"github.com/ndklab/ndklab/fabric/report"
	"github.com/ndklab/ndklab/topology"
)

// The last packets of all links together are kept, in two files of which the older one is
// dropped when the newer is full.
const (
	ringSize  = 8 << 20 // bytes of a file
	ringFiles = 2
	// snaplen has the headers of every RoCE packet and the begin of its payload.
	snaplen = 256
	// mostCaptured bounds the links that are captured, each of which costs the recorder
	// two open files at both of its ends.
	mostCaptured = 64
)

// An evidence is the folder for what is kept of a lab whose test fails. It is there from
// the beginning: a test that is killed leaves the packets.
type evidence struct {
	dir string
}

// newEvidence makes the folder and has the lab record to it.
func newEvidence(t testing.TB, topo *topology.Topology, capture bool) (*evidence, error) {
	root, err := artifacts(t)
	if err != nil {
		return nil, err
	}
	e := &evidence{dir: filepath.Join(root, fmt.Sprintf("%s-%d", topo.Name, topo.Seed))}
	if !capture || len(topo.Links) == 0 || len(topo.Links) > mostCaptured {
		return e, nil
	}
	if err := os.MkdirAll(e.dir, 0o755); err != nil {
		return nil, err
	}
	c := topology.Capture{File: filepath.Join(e.dir, "packets.pcapng"), Snaplen: snaplen, RingSize: ringSize, RingFiles: ringFiles}
	for _, l := range topo.Links {
		for _, end := range l.Endpoints {
			if !end.External() {
				c.Interfaces = append(c.Interfaces, end)
			}
		}
	}
	topo.Captures = append(topo.Captures, c)
	return e, nil
}

// artifacts is the folder for the evidence of a test's labs: NDKLAB_ARTIFACTS; that of
// package testing if it is to be kept (go test -artifacts); or one among temporary files.
func artifacts(t testing.TB) (string, error) {
	if dir := os.Getenv(envArtifacts); dir != "" {
		return filepath.Abs(dir)
	}
	if f := flag.Lookup("test.artifacts"); f != nil && f.Value.String() == "true" {
		return t.ArtifactDir(), nil
	}
	return filepath.Join(os.TempDir(), "ndklab-artifacts-"+strconv.Itoa(os.Geteuid())), nil
}

// discard removes what was recorded.
func (e *evidence) discard(t testing.TB) {
	if err := os.RemoveAll(e.dir); err != nil {
		t.Logf("evidence: %v", err)
	}
}

// collectTime bounds the questions to a lab that may not answer.
const collectTime = 5 * time.Second

// collect writes what the lab knows of itself. What cannot be had is told of.
func (e *evidence) collect(l *Lab) {
	ctx, cancel := context.WithTimeout(context.Background(), collectTime)
	defer cancel()
	err := os.MkdirAll(e.dir, 0o755)
	write := func(name string, content func(*os.File) error) {
		f, openErr := os.Create(filepath.Join(e.dir, name))
		if openErr != nil {
			err = errors.Join(err, openErr)
			return
		}
		err = errors.Join(err, content(f), f.Close())
	}
	write("topology.ndklab.yaml", func(f *os.File) error {
		_, err := f.WriteString(l.doc.text)
		return err
	})
	write("log.txt", func(f *os.File) error {
		return lab.Logs(ctx, l.topo.Name, lab.LogOptions{Tail: -1}, func(line []byte) error {
			_, err := f.Write(append(slices.Clone(line), '\n'))
			return err
		})
	})
	write("events.txt", func(f *os.File) error {
		for _, event := range l.Events() {
			if _, err := fmt.Fprintln(f, eventLine(event)); err != nil {
				return err
			}
		}
		return nil
	})
	inspection, inspectErr := l.lab.Inspect(ctx)
	err = errors.Join(err, explain(inspectErr))
	if inspection != nil {
		write("inspect.json", func(f *os.File) error { return report.WriteJSON(f, inspection) })
		write("inspect.txt", func(f *os.File) error {
			return report.WriteInspection(f, inspection.Lab, inspection.State, inspection.Seed, inspection.Nodes, inspection.Links, inspection.Externals)
		})
	}
	if err != nil {
		l.t.Logf("lab %s: evidence is missing: %v", l.topo.Name, err)
	}
}

func eventLine(e Event) string { return fmt.Sprintf("%9.3fs %-16s %s", e.At.Seconds(), e.Kind, e.Text) }

// ofCapture are the kinds of events that tell of the evidence itself.
var ofCapture = map[string]bool{lab.CaptureStarted: true, lab.CaptureDone: true, lab.Captured: true}

// lastEvents is how many events are in the output of a test that failed.
const lastEvents = 12

// tell says what there is, when the lab is down and its capture complete.
func (e *evidence) tell(t testing.TB, l *Lab) {
	var text strings.Builder
	fmt.Fprintf(&text, "lab %s, seed %d, the last that happened:\n", l.topo.Name, l.topo.Seed)
	all := slices.DeleteFunc(l.Events(), func(e Event) bool { return ofCapture[e.Kind] })
	for _, event := range all[max(0, len(all)-lastEvents):] {
		fmt.Fprintln(&text, eventLine(event))
	}
	entries, err := os.ReadDir(e.dir)
	if err != nil {
		t.Logf("%sevidence: %v", &text, err)
		return
	}
	fmt.Fprintf(&text, "evidence is in %s:", e.dir)
	for _, entry := range entries {
		text.WriteString(" " + entry.Name())
	}
	fmt.Fprintf(&text, "\nto repeat it: %s=%d go test -run '^%s$'", envSeed, l.topo.Seed, strings.ReplaceAll(t.Name(), "/", "$/^"))
	t.Log(text.String())
}
