package watch

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/doctor"
	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/fabric/trace"
	"github.com/ndklab/ndklab/internal/need"
)

const (
	messages = 20
	packets  = 20 * 8 // of all messages
)

// up brings a lab of two nodes up for the time of the test.
func up(t *testing.T) *lab.Lab {
	t.Helper()
	need.Labs(t, doctor.Examine(t.Context()).CanRun)
	name := fmt.Sprintf("watch-%d", os.Getpid())
	file := filepath.Join(t.TempDir(), "lab.ndklab.yaml")
	text := fmt.Sprintf(`
name: %s
seed: 1
topology:
  nodes: {client: , server: }
  links:
    - {endpoints: ["client:eth0", "server:eth0"], delay: 1ms, overrun: allow, loss: {every: 50}, mtu: 1500}
workloads:
  - {name: w, from: client, to: server, operation: write, size: 8KiB, count: %d}
`, name, messages)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(filepath.Join(bin, "ndklab"), "up", file).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command(filepath.Join(bin, "ndklab"), "down", name).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
	l, err := lab.Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// Both directions of a link are seen from either end, each packet once and with its fate, and a queue pair's sequence has all that it
// sent, with losses and what was sent again.
func TestLab(t *testing.T) {
	l := up(t)
	w := New(l, time.Now())
	defer w.Close()
	if _, err := w.Rows(t.Context(), "nobody:eth0", 1); err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("of an interface that is not there: %v", err)
	}
	if _, err := w.Rows(t.Context(), "client:eth0", 1); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	late := time.After(time.Minute)
	for {
		rows, err := w.Rows(t.Context(), "client:eth0", remembered)
		if err != nil {
			t.Fatal(err)
		}
		if qpn := clientQPN(t, rows); qpn != 0 {
			s, err := w.Sequence(t.Context(), trace.QueuePair{Endpoint: "client:eth0", QPN: qpn})
			if err != nil {
				t.Fatal(err)
			}
			if checkSequence(t, s) {
				return
			}
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("%d rows", len(rows))
		}
	}
}

// clientQPN checks rows, and returns the queue pair that writes are acknowledged to; 0: not yet.
func clientQPN(t *testing.T, rows []trace.Row) (qpn uint32) {
	t.Helper()
	for i, row := range rows {
		if row.From != "client:eth0" && row.From != "server:eth0" || row.Opcode == "RC RDMA WRITE Middle" && row.From != "client:eth0" ||
			row.Fate == trace.Unknown || (row.Fate == trace.Dropped) != (row.Delay == nil) || row.Fate == trace.Delivered && *row.Delay < 1000 {
			t.Fatalf("row %d: %+v", i, row)
		}
		if row.Opcode == "RC Acknowledge" && row.From == "server:eth0" {
			qpn = *row.QP
		}
	}
	return qpn
}

// checkSequence checks a sequence, and reports whether it is complete.
func checkSequence(t *testing.T, s trace.Sequence) (complete bool) {
	t.Helper()
	var last, acked int64
	sent, lost, resent := 0, 0, 0
	for _, p := range s.Points {
		switch {
		case p.Kind == trace.Data:
			last = p.PSN
			sent++
		case p.Kind == trace.Resent:
			resent++
		case p.Acked != nil:
			acked = *p.Acked
		}
		if p.Lost != "" && (p.Kind == trace.Data || p.Kind == trace.Resent) {
			lost++
			if p.Lost != "loss (every n-th)" {
				t.Errorf("lost by %s", p.Lost)
			}
		}
	}
	if acked <= last || sent < packets {
		return false
	}
	if lost == 0 || resent < lost {
		t.Errorf("%d packets of %d lost, %d sent again", lost, sent, resent)
	}
	if s.Reversed || s.To.QPN == 0 {
		t.Errorf("from %+v to %+v", s.From, s.To)
	}
	return true
}
