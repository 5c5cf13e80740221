package simulate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/mmu"
)

// deadlockRing is five routers with small buffers in a ring, each with a host that sends to the second next.
func deadlockRing() string {
	var b strings.Builder
	b.WriteString("name: ring\nseed: 1\ntopology:\n  defaults: {adapter: {pfc: [3], dscp: 26, congestion: none, turnaround: 500ns}, link: {rate: 40gbit, delay: 1us, mtu: 4600}}\n" +
		"  nodes: {\"s[0-4]\": {kind: router, buffer: {size: 1MiB}}, \"h[0-4]\": }\n  links:\n")
	for i := range 5 {
		fmt.Fprintf(&b, "    - {endpoints: [\"h%d:eth0\", \"s%d:h\"]}\n    - {endpoints: [\"s%d:next\", \"s%d:last\"]}\n", i, i, i, (i+1)%5)
	}
	b.WriteString("workloads:\n")
	for i := range 5 {
		fmt.Fprintf(&b, "  - {name: w%d, from: h%d, to: h%d, operation: write, size: 1MiB, depth: 8, duration: 20ms}\n", i, i, (i+2)%5)
	}
	return b.String()
}

// Queues that wait for each other are told once, by name, when the last of their pauses begins, and the report has them.
func TestDeadlock(t *testing.T) {
	r, told := play(t, deadlockRing(), event.Deadlock)
	if len(r.Deadlocks) != 1 || len(told) != 1 {
		t.Fatalf("reported %+v, told %q", r.Deadlocks, told)
	}
	d := r.Deadlocks[0]
	if diff := cmp.Diff([]string{"s0:next", "s1:next", "s2:next", "s3:next", "s4:next"}, d.Queues); diff != "" || d.Class != 3 {
		t.Errorf("class %d, queues (-want +got):\n%s", d.Class, diff)
	}
	at := time.Duration(d.AtUS * 1e3)
	if at <= 0 || at > 10*time.Millisecond {
		t.Errorf("at %v", at)
	}
	wantTold(t, told, at.String()+" deadlock in class 3: s0:next -> s1:next -> s2:next -> s3:next -> s4:next -> s0:next")
}

// A host's adapter in a storm has its neighbour pause from its first frame on until the storm ends, however long, by frames that
// are renewed twice in the time of each, the last of which has 0 quanta. Other classes go on.
func TestStorm(t *testing.T) {
	const long = 5 * time.Millisecond
	half := mmu.QuantaTime(mmu.MostQuanta, 10e9) / 2
	r := run(t, parsed(t, buffered("switch", "hpcc, priorities: {lossless: [3, 4]}", "pfc: [3, 4]", `
workloads:
  - {name: data, from: a, to: b, operation: write, size: 4KiB, count: 1, start: 2ms}
timeline:
  - {at: 1ms, storm: b, for: 5ms}
  - {at: 20ms, storm: b, priority: 4, for: 1ms}
  - {at: 30ms, mark: over}
`)))
	c := classAt(r, "s", "b", 3)
	if want := uint64(long/half) + 2; c.RxPauses != want || c.RxPauseUS != 5000 || c.RxTransitions != 1 {
		t.Errorf("%d PFC frames, want %d; paused for %v us in %d pauses, want 5000 in 1", c.RxPauses, want, c.RxPauseUS, c.RxTransitions)
	}
	if c := classAt(r, "s", "b", 4); c.RxPauses != 2 || c.RxPauseUS != 1000 || c.RxTransitions != 1 {
		t.Errorf("priority 4: %d PFC frames, paused for %v us in %d pauses", c.RxPauses, c.RxPauseUS, c.RxTransitions)
	}
	// The workload begins at 2 ms and the storm ends at 6 ms.
	if w := r.Workloads[0]; w.Errors > 0 || w.Messages != 1 || w.Seconds < 0.0039 || w.Seconds > 0.0041 {
		t.Errorf("%d messages, %d errors in %v s, want 1 in the 4 ms that the storm lasts", w.Messages, w.Errors, w.Seconds)
	}
}

// A storm that nobody would hear is an error, which says why.
func TestStormWithoutEffect(t *testing.T) {
	r := run(t, parsed(t, pair("delay: 1us")+`
workloads: [{name: w, from: a, to: b, operation: write, size: 4KiB, count: 1}]
timeline: [{at: 1ms, storm: b, for: 5ms}]
`))
	if got := fmt.Sprint(r.Problems) + fmt.Sprint(r.Events); r.Passed || !strings.Contains(got, "node b: a storm has no effect where the adapter has no pfc and no switch beside it a buffer") {
		t.Errorf("passed %v: %s", r.Passed, got)
	}
}
