package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/linkem"
	"github.com/ndklab/ndklab/internal/fabric/probe"
	"github.com/ndklab/ndklab/internal/hosts"
	"github.com/ndklab/ndklab/internal/node"
	"github.com/ndklab/ndklab/topology"
	"golang.org/x/sys/unix"
)

// twoHosts are hosts for a test. Of two nodes, each has one.
const twoHosts = "local:2"

// A capture of both ends of a link between two hosts has every packet with the decision on it, and each that arrives behind
// where it was sent.
func TestCaptureAcrossHosts(t *testing.T) {
	topo := ring(uniqueName(t), 2)
	topo.Links[0].Directions[0] = topology.Impairment{Delay: 5 * time.Millisecond, Loss: topology.Loss{Every: 2}}
	l := startWith(t, topo, Options{Hosts: twoHosts})
	path := filepath.Join(t.TempDir(), "both.pcapng")
	recording := startRecording(t, l, Recording{Capture: topology.Capture{Interfaces: endpoints("n0:eth0", "n1:eth0"), File: path}})
	const first, volleys = 100, 20
	for i := range volleys {
		fire(t, l, 4791, first+i)
	}
	volleyIn(t, path, first+volleys-1, volley/2) // the last one has come
	for i, c := range recording.end(t) {
		if c.Dropped > 0 || c.Fateless > 0 {
			t.Errorf("interface %d: %+v", i, c)
		}
	}
	sent, arrived, total := map[string]int{}, 0, 0
	for i, p := range readCapture(t, path) {
		if size := len(p.frame) - 42; size < first || size >= first+volleys {
			continue
		}
		switch key := string(p.frame[14:]); {
		case p.iface == "n0:eth0" && p.comment == "delayed 5ms":
			sent[key]++
			total++
		case p.iface == "n0:eth0" && p.comment == "dropped: loss (every n-th)":
			total++
		case p.iface == "n1:eth0" && p.comment == "" && sent[key] > 0:
			sent[key]--
			arrived++
		default:
			t.Errorf("packet %d at %s, of %d bytes, with the comment %q: expected every second one to be lost, and the others behind where they were sent", i+1, p.iface, len(p.frame), p.comment)
		}
	}
	if total != volleys*volley || arrived != total/2 {
		t.Errorf("%d packets were sent and %d arrived, want %d and half of that", total, arrived, volleys*volley)
	}
}

// otherTime has the clock of host2 say that it is later there. The kernel, which both hosts have, says the same of packets at both:
// with times that are corrected, those at host2 are so much earlier.
const otherTime = 5 * time.Second

func setOtherTime(t *testing.T) { t.Setenv(hosts.ClockVariable, "host2="+otherTime.String()) }

// unsure is by how much times at a host may be wrong, by what a file says of an interface there.
func unsure(t *testing.T, about, host string) time.Duration {
	t.Helper()
	var ahead, wrong float64
	if _, err := fmt.Sscanf(about, "at host "+host+", whose clock is ahead by %f us, give or take %f us, which is taken off its times", &ahead, &wrong); err != nil || wrong <= 0 {
		t.Fatalf("an interface at %s: %q, %v", host, about, err)
	}
	return time.Duration(wrong * 1e3)
}

// Times of packets at different hosts are of one time line, within what the file says.
func TestCaptureWithClocksApart(t *testing.T) {
	setOtherTime(t)
	began := time.Now()
	const delay = 5 * time.Millisecond
	topo := ring(uniqueName(t), 2)
	topo.Links[0].Directions[0] = topology.Impairment{Delay: delay}
	l := startWith(t, topo, Options{Hosts: twoHosts})
	path := filepath.Join(t.TempDir(), "both.pcapng")
	recording := startRecording(t, l, Recording{Capture: topology.Capture{Interfaces: endpoints("n0:eth0", "n1:eth0"), File: path}})
	fire(t, l, 4791, 100)
	volleyIn(t, path, 100, volley)
	for i, c := range recording.end(t) {
		if c.Dropped > 0 || c.Fateless > 0 {
			t.Errorf("interface %d: %+v", i, c)
		}
	}
	sent, arrived := map[string]time.Time{}, map[string]time.Time{}
	var may time.Duration
	for _, p := range readCapture(t, path) {
		if len(p.frame) != 142 {
			continue
		}
		if p.iface == "n0:eth0" {
			sent[string(p.frame[14:])] = p.at
			if p.comment != "delayed 5ms" {
				t.Errorf("a packet was %q", p.comment)
			}
			may = max(may, unsure(t, p.about, "host1"))
			continue
		}
		arrived[string(p.frame[14:])] = p.at
		may = max(may, unsure(t, p.about, "host2"))
	}
	least := time.Hour
	for key, at := range arrived {
		least = min(least, at.Add(otherTime).Sub(sent[key]))
	}
	events, _, err := l.Events(testContext(t), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range events {
		if e.Time.Before(began) || e.Time.After(time.Now()) || i > 0 && e.Time.Before(events[i-1].Time) {
			t.Errorf("event %d is of %v, %v after the test began: %s", i, e.Time, e.Time.Sub(began), e.Text)
		}
	}
	if !slices.ContainsFunc(events, func(e event.Event) bool { return e.Kind == event.CaptureStarted && e.Node == "n1" }) {
		t.Error("no event is of host2")
	}
	// Differences that change while it captures are of the same size.
	if len(sent) != volley || len(arrived) != volley || least < delay-4*may || may > 100*time.Millisecond {
		t.Errorf("%d packets were sent, %d arrived, and took %v at least, wrong by %v at most: expected %d and %v", len(sent), len(arrived), least, may, volley, delay)
	}
}

// A failed run keeps the last packets of all hosts, with times of one time line.
func TestMemoryAcrossHosts(t *testing.T) {
	setOtherTime(t)
	l := startWith(t, ring(uniqueName(t), 2), Options{Hosts: twoHosts})
	m := remember(t, l)
	began := time.Now()
	runCommand(t, l, "n1", node.Command{Args: []string{"/proc/self/exe"}, Env: programEnv("volley 10.0.0.1:4791 100")})
	fire(t, l, 4791, 100)
	var all []capturedPacket
	eventually(t, testTime, func() string { // the last ones may come a moment later
		files := remembered(t, m)
		if got := volleys(t, files, 100); got["n0:eth0"] != 1 || got["n1:eth0"] != 1 {
			return fmt.Sprintf("volleys were sent by %v", got)
		}
		all, _ = readPackets(t, bytes.NewReader(files["links.pcapng"]))
		return ""
	})
	for i, p := range all {
		at, host := p.at, "host1"
		if p.iface == "n1:eth0" {
			at, host = at.Add(otherTime), "host2"
		}
		if may := unsure(t, p.about, host); at.Before(began.Add(-may-time.Minute)) || strings.HasPrefix(p.comment, "the first of") && at.Before(began.Add(-may)) || at.After(time.Now().Add(may)) {
			t.Errorf("a packet of %s is of %v, %v after the test began, %s", p.iface, at, at.Sub(began), p.about)
		}
		if i > 0 && p.at.Before(all[i-1].at) {
			t.Error("packets are not in the order of time")
		}
	}

	// With the lab its hosts are gone, and what they kept.
	if err := l.Down(testContext(t)); err != nil {
		t.Fatal(err)
	}
	err := m.Write(testContext(t), func(string, func(io.Writer) error) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "links.pcapng: the lab is over") {
		t.Errorf("the packets of a lab that is over: %v", err)
	}
}

// The report of a run says how the clocks of hosts differ.
func TestClocksInReport(t *testing.T) {
	setOtherTime(t)
	l := startWith(t, runnable(t, "mtu: 4200", ""), Options{Hosts: twoHosts})
	r := runLab(t, l)
	if len(r.Hosts) != 2 {
		t.Fatalf("hosts: %+v", r.Hosts)
	}
	for i, h := range r.Hosts {
		if h.OffsetUS == nil || h.OffsetErrorUS == nil || *h.OffsetErrorUS <= 0 || math.Abs(*h.OffsetUS-float64(i)*inMicros(otherTime)) > *h.OffsetErrorUS {
			t.Errorf("%s: ahead by %v us, give or take %v", h.Name, h.OffsetUS, h.OffsetErrorUS)
		}
	}
}

// A capture at another host ends with its node, and says why.
func TestCaptureAcrossHostsEndsWithItsNode(t *testing.T) {
	l := startWith(t, ring(uniqueName(t), 2), Options{Hosts: twoHosts})
	source, why, err := l.beginCapture(testContext(t), "n1:eth0")
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	if _, err := l.Nodes.Kill(testContext(t), "n1", unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-source.Gone:
	case <-time.After(testTime):
		t.Fatal("the capture does not end")
	}
	if err := why(); err == nil || !strings.Contains(err.Error(), "node n1 is down: ") {
		t.Errorf("the capture ended: %v", err)
	}
	_, err = l.Capture(testContext(t), "n1:eth0")
	wantCode(t, err, control.Usage)
	if err == nil || !strings.Contains(err.Error(), "n1 is down") {
		t.Errorf("a capture of a node that is down: %v", err)
	}
}

// A log of a lab over two hosts, of whose only link each has a direction, is that of one host, and replays there and here.
func TestDecisionsAcrossHosts(t *testing.T) {
	dir := t.TempDir()
	record := func(name string, seed uint64, options Options) [2][]string {
		t.Helper()
		file, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		options.Record = file
		t.Run(name, func(t *testing.T) { recordDecisions(t, seed, options) })
		return decisionsIn(t, file.Name())
	}
	one := record("one", 1, Options{})
	two := record("two", 1, Options{Hosts: twoHosts})
	if diff := cmp.Diff(one, two); diff != "" {
		t.Errorf("decisions of the same seed (-one host +two):\n%s", diff)
	}
	if diff := cmp.Diff(one, record("other", 2, Options{Hosts: twoHosts})); diff == "" {
		t.Error("another seed, but the same decisions")
	}
	log, err := os.Open(filepath.Join(dir, "one"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if diff := cmp.Diff(one, record("replayed", 2, Options{Hosts: twoHosts, Replay: log})); diff != "" {
		t.Errorf("replayed (-recorded on one host +replayed on two):\n%s", diff)
	}
}

// logged is the number of packets of each direction whose decisions are compared.
const logged = 100

// recordDecisions has a node of a lab send another some packets, which are answered.
func recordDecisions(t *testing.T, seed uint64, options Options) {
	t.Helper()
	topo := ring(uniqueName(t), 2)
	topo.Seed = seed
	for d := range topo.Links[0].Directions {
		topo.Links[0].Directions[d] = topology.Impairment{Delay: time.Millisecond, Loss: topology.Loss{Rate: 0.2}, Duplicate: 0.2}
	}
	l := startWith(t, topo, options)
	if got := program(t, l, "n1", "echo 5000").line(t); got != "bound" {
		t.Fatal(got)
	}
	program(t, l, "n0", fmt.Sprintf("send 10.0.0.2:5000 %d 1 100", 3*logged)).wait(t)
	eventually(t, testTime, func() string {
		for d := range 2 {
			if got := direction(t, l, d); got.Packets < logged || options.Replay != nil && (got.Replayed == nil || got.Replayed.Packets < logged) {
				return fmt.Sprintf("direction %d: packets: %d, replayed: %+v", d, got.Packets, got.Replayed)
			}
		}
		return ""
	})
}

// decisionsIn returns the first decisions on each direction of a lab's only link, without what depends on when and on which
// packets they were made.
func decisionsIn(t *testing.T, name string) (by [2][]string) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.SplitAfter(string(data), "\n") {
		if line == "" {
			continue
		}
		var r struct {
			Ndklab, Link, Fate, Cause string
			Direction                 int
			Place, Delay              uint64
			Twice                     bool
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%s: %q: %v", name, line, err)
		}
		if (r.Ndklab != "") != (i == 0) || i > 0 && r.Place == 0 {
			t.Fatalf("%s: line %d is %q: expected a header, then records", name, i+1, line)
		}
		if i > 0 && len(by[r.Direction]) < logged {
			by[r.Direction] = append(by[r.Direction], fmt.Sprint(r.Link, " ", r.Place, " ", r.Fate, " ", r.Cause, " ", r.Twice))
		}
	}
	if len(by[0]) < logged || len(by[1]) < logged {
		t.Errorf("%s: %d and %d decisions, want %d each", name, len(by[0]), len(by[1]), logged)
	}
	return by
}

// Probes cross a link within a host, and one between hosts, of which the report says how unsure it is.
func TestVerifyAcrossHosts(t *testing.T) {
	topo := ring(uniqueName(t), 4) // n0 and n1 are at one host, n2 and n3 at the other
	for i := range topo.Links {
		topo.Links[i].Directions[0] = topology.Impairment{Delay: 5 * time.Millisecond}
		topo.Links[i].Tolerance = patient
	}
	l := startWith(t, topo, Options{Hosts: twoHosts})
	for endpoint, between := range map[string]bool{"n0:eth0": false, "n1:eth0": true} {
		v, err := l.Links.Verify(testContext(t), endpoint, Probes{Count: 100, PerSecond: 1000})
		if err != nil {
			t.Fatal(err)
		}
		d, unsure := v.Directions[0], 0.0
		if e := d.ClockErrorUS; e != nil {
			unsure = *e
		}
		if (unsure > 0) != between || unsure > 4000 {
			t.Errorf("%s: the delays may be wrong by %g us", endpoint, unsure)
		}
		if !v.Passed || d.Received != 100 || d.From != endpoint || d.Delay.Min < 4980-unsure || v.Directions[1].Received != 100 || v.Directions[1].Delay.Min > 4900 {
			t.Errorf("%s: passed %v, %+v", endpoint, v.Passed, v.Directions)
		}
	}
	// A wrong request is refused before anything is sent, and by its part where that has to know.
	_, err := l.Links.Verify(testContext(t), "n1:eth0", Probes{Size: 10})
	wantCode(t, err, control.Usage)
	act(t, l, "n2", StopNode, nodeDown)
	_, err = l.Links.Verify(testContext(t), "n1:eth0", Probes{})
	wantCode(t, err, control.Usage)
	// A command that goes away ends the probes at both hosts, which then can be probed again.
	act(t, l, "n2", StartNode, nodeReady)
	ctx, cancel := context.WithTimeout(testContext(t), 300*time.Millisecond)
	defer cancel()
	if _, err := l.Links.Verify(ctx, "n1:eth0", Probes{Count: 60_000, PerSecond: 1000}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a command that gave up: %v", err)
	}
	if v, err := l.Links.Verify(testContext(t), "n1:eth0", Probes{Count: 100, PerSecond: 1000}); err != nil || v.Directions[0].Received != 100 {
		t.Errorf("%+v, %v", v, err)
	}
}

// Delays between two hosts are right within what is said, whatever their clocks and those of their engines are.
func TestFlightBetweenClocks(t *testing.T) {
	const (
		delay       = 3 * time.Millisecond
		ahead       = 40 * time.Minute // the receiver's wall clock, of the sender's
		begun       = 7 * time.Second  // the receiver's engine, after the sender's
		wrong, more = 12 * time.Microsecond, 9 * time.Microsecond
	)
	wall := 400 * 24 * time.Hour
	// The engine's clock counts from when it began: the later it has begun, the more the wall clock is ahead of it.
	own := linkem.TrunkCounts{Ahead: -begun + wrong/2, Wrong: wrong, Wall: wall}
	other := linkem.TrunkCounts{Ahead: begun - wrong/2, Wrong: more, Wall: wall + begun + ahead}
	before := wallDifference(own, other)
	if got := (before.Ahead - ahead).Abs(); got > before.Wrong || before.Wrong != wrong+more {
		t.Errorf("%+v, want %v", before, ahead)
	}
	after := before
	after.Ahead += 5 * time.Microsecond
	f := &probe.Flight{Sent: []time.Duration{wall}, Missed: 1}
	join(f, &probe.Seen{Arrivals: []probe.Arrival{{At: wall + delay + ahead}}, Missed: 2}, before, after)
	if got := f.Arrivals[0].At - f.Sent[0] - delay; got.Abs() > f.Unsure || f.Unsure != wrong+more+5*time.Microsecond || f.Missed != 3 {
		t.Errorf("a delay is wrong by %v, and said to be so by %v; missed: %d", got, f.Unsure, f.Missed)
	}
}

// The losses of a failed run come from all hosts.
func TestLossesAcrossHosts(t *testing.T) {
	topo := ring(uniqueName(t), 2)
	for d := range topo.Links[0].Directions {
		topo.Links[0].Directions[d] = topology.Impairment{Loss: topology.Loss{Rate: 1}}
	}
	l := startWith(t, topo, Options{Hosts: twoHosts})
	for i, to := range []string{"10.0.0.2", "10.0.0.1"} { // each asks who has the address
		runCommand(t, l, fmt.Sprintf("n%d", i), node.Command{Args: []string{"/proc/self/exe"}, Env: programEnv("send " + to + ":5000 1 1 100")})
	}
	path := filepath.Join(t.TempDir(), "losses.log")
	eventually(t, testTime, func() string {
		file, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if err := methodLosses.Call(testContext(t), l.conn, nil, file); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if text := string(data); strings.Count(text, "decisions") != 1 || !strings.Contains(text, `"direction":0`) || !strings.Contains(text, `"direction":1`) {
			return text
		}
		return ""
	})
}
