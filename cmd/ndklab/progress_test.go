package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/event"
)

// Each of a few workloads has lines of its own.
func TestProgressOfFew(t *testing.T) {
	var b strings.Builder
	p := newProgress(&b, false)
	defer p.close()
	for i := range fewWorkloads {
		p.event(event.Event{Kind: event.WorkloadStarted, Text: fmt.Sprintf("workload w%d", i)})
		p.event(event.Event{Kind: event.WorkloadProgress, At: time.Second, Text: fmt.Sprintf("w%d: messages", i)})
		p.event(event.Event{Kind: event.WorkloadDone, At: 2 * time.Second, Text: fmt.Sprintf("w%d done", i)})
	}
	if got := strings.Count(b.String(), "\n"); got != 3*fewWorkloads {
		t.Errorf("%d lines, want %d:\n%s", got, 3*fewWorkloads, b.String())
	}
}

// Of many, their number is told once a second and when all are done; other events are.
func TestProgressOfMany(t *testing.T) {
	var b strings.Builder
	p := newProgress(&b, false)
	defer p.close()
	for i := range 64 {
		p.event(event.Event{Kind: event.WorkloadStarted, Text: fmt.Sprintf("workload w%d", i)})
	}
	for second := range 3 {
		for range 64 {
			p.event(event.Event{Kind: event.WorkloadProgress, At: time.Duration(second) * time.Second, Text: "messages"})
		}
	}
	p.event(event.Event{Kind: event.LinkChanged, At: 2500 * time.Millisecond, Text: "link a:eth0: loss 2%"})
	for range 64 {
		p.event(event.Event{Kind: event.WorkloadDone, At: 2600 * time.Millisecond, Text: "done"})
	}
	const want = `workload w0
workload w1
workload w2
workload w3
workload w4
   1.0 s  workloads: 64 started, 0 done
   2.0 s  workloads: 64 started, 0 done
   2.5 s  link a:eth0: loss 2%
   2.6 s  workloads: 64 started, 64 done
`
	if b.String() != want {
		t.Errorf("%s\nwant\n%s", b.String(), want)
	}
}
