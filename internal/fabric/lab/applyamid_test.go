package lab

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/lab/link"
)

// This file tests an Apply against all else that changes a lab, or waits for it.

// crowdFile is a lab whose hosts come and go.
const crowdFile = `topology:
  nodes: {s: {kind: switch}, a: , b: {restart: always}, c: {restart: always}}
  links:
    - {endpoints: ["a:eth0", "s:1"]}
    - {endpoints: ["b:eth0", "s:2"], delay: 1ms, overrun: allow}
    - {endpoints: ["c:eth0", "s:3"]}
`

// A wait for a node is for the one that has the name by then, and ends with an error when it
// has gone. A capture of an interface ends with it.
func TestWaitAmidApply(t *testing.T) {
	l := start(t, parsed(t, uniqueName(t), nil, crowdFile))
	applyTooLarge(t, l)
	act(t, l, "c", StopNode, nodeDown)
	ready := make(chan error, 1)
	go func() {
		a, err := Await(testContext(t), l.Info().Lab, "c", Condition{State: Ready}, testTime)
		if err == nil && !a.Reached {
			err = fmt.Errorf("%+v", a)
		}
		ready <- err
	}()
	captured, err := l.Capture(testContext(t), "s:3")
	if err != nil {
		t.Fatal(err)
	}
	defer captured.Socket.Close()
	defer captured.Tap.Close()
	// c becomes a router: another node. While there is none another link changes, of which
	// an event tells.
	applied(t, l, edited(t, crowdFile, "c: {restart: always}", "c: {kind: router}", "delay: 1ms", "delay: 2ms"))
	if err := <-ready; err != nil {
		t.Errorf("wait for c: %v", err)
	}
	select {
	case <-captured.Gone:
	case <-time.After(testTime):
		t.Error("the capture goes on without its link")
	}
	gone := make(chan error, 1)
	waiting := make(chan struct{})
	go func() {
		close(waiting)
		_, err := Await(testContext(t), l.Info().Lab, "c", Condition{State: nodePaused}, testTime)
		gone <- err
	}()
	<-waiting
	applied(t, l, edited(t, crowdFile, ", c: {restart: always}", "", `    - {endpoints: ["c:eth0", "s:3"]}`+"\n", ""))
	if err := <-gone; err == nil || !strings.Contains(err.Error(), `no node "c"`) {
		t.Errorf("wait for a node that goes: %v", err)
	}
}

// An Apply that the kernel cannot carry out fails before anything of the lab is changed.
func applyTooLarge(t *testing.T, l *Lab) {
	t.Helper()
	standing, err := l.Standing(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	f := fabric{parsed(t, l.Info().Lab, standing.Topology, crowdFile)}
	for i := range link.MaxPorts {
		f.link(fmt.Sprintf("a:x%d", i), fmt.Sprintf("s:x%d", i))
	}
	err = l.Apply(testContext(t), f.Topology, standing)
	wantCode(t, err, control.Usage)
	if err == nil || !strings.Contains(err.Error(), "join several switches by a link") {
		t.Error(err)
	}
	if got := states(t, l); got != "up up up" {
		t.Errorf("links %s", got)
	}
	if in := inspected(t, l); in.Unfinished != "" {
		t.Errorf("unfinished: %s", in.Unfinished)
	}
}
