package simulate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/hazard"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/scenario"
	"github.com/ndklab/ndklab/internal/need"
	"github.com/ndklab/ndklab/internal/node/workload"
	"github.com/ndklab/ndklab/internal/race"
	"github.com/ndklab/ndklab/topology"
)

// spread has the nodes of a topology in shards, whatever comes of that: as many as there are at most. The count is 1 where a link
// without delay keeps them together, or a deadlock is possible.
func spread(topo *topology.Topology, count int) sharding {
	if hazard.MayDeadlock(topo) {
		return unsharded
	}
	return spreadAnyhow(topo, count)
}

// spreadAnyhow is spread though a deadlock may be possible.
func spreadAnyhow(topo *topology.Topology, count int) sharding {
	of, _ := balance(topo, count, false)
	used := map[int]bool{}
	for _, shard := range of {
		used[shard] = true
	}
	if len(used) < count {
		return unsharded
	}
	return sharding{of, count}
}

// runInWindows runs a topology in shards, with windows between less than so many events at random. It returns how many events ran in
// windows.
func runInWindows(t testing.TB, topo *topology.Topology, s sharding, between int) (result *report.Run, inWindows int, err error) {
	t.Helper()
	l, err := newLab(topo, Options{}, s)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	play := scenario.Begin(l, topo, func(r *report.Run, err error) {
		if result = r; err != nil {
			t.Error(err)
		}
	})
	play.InVirtualTime()
	random := rand.New(rand.NewPCG(1, uint64(s.count)))
	for result == nil {
		tried := l.windows.wait == 0
		n, err := l.step()
		if tried {
			l.windows.wait = random.IntN(between)
		}
		if err != nil {
			return nil, inWindows, err
		}
		if n == 0 {
			t.Fatal("nothing is left that could happen")
		}
		if n > 1 {
			inWindows += n
		}
	}
	return result, inWindows, nil
}

// compare runs a topology with one shard and, as runInWindows does, with several, and compares the reports. It returns how many events ran
// in windows.
func compare(t *testing.T, topo *topology.Topology, between int, counts ...int) (inWindows int) {
	t.Helper()
	want := ""
	for _, count := range counts {
		s := spread(topo, count)
		if s.count == 1 {
			continue
		}
		if want == "" {
			r, err := runSharded(t.Context(), topo, Options{}, unsharded)
			if err != nil {
				t.Fatal(err)
			}
			want = lines(t, r)
		}
		got, n, err := runInWindows(t, topo, s, between)
		if err != nil {
			t.Errorf("%s, %d shards: %v", topo.Name, count, err)
			continue
		}
		inWindows += n
		if text := lines(t, got); text != want {
			t.Errorf("%s: %d shards make another report: %s", topo.Name, count, firstDifference(want, text))
		}
	}
	return inWindows
}

// firstDifference returns where two texts differ first.
func firstDifference(a, b string) string {
	i := 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	around := func(s string) string { return s[max(0, i-200):min(len(s), i+200)] }
	return around(a) + "\n--- is\n" + around(b)
}

// The examples make the same reports in shards.
func TestExamplesInWindows(t *testing.T) {
	counts, between, least := []int{2}, 100, 30_000
	switch {
	case race.Enabled():
		between, least = 1000, 3_000
	case need.Long():
		counts = append(counts, 3)
	}
	for _, pattern := range []string{"*.ndklab.yaml", "congestion/*.ndklab.yaml", "suite/*.ndklab.yaml"} {
		files, err := filepath.Glob(filepath.Join("../../../examples", pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		inWindows := 0
		for _, file := range files {
			topo := read(t, file)
			if Refuse(topo) == nil {
				inWindows += compare(t, topo.Draw(topo.Seed), between, counts...)
			}
		}
		if inWindows < least {
			t.Errorf("%s: %d events in windows, want more", pattern, inWindows)
		}
	}
}

// Random links make the same reports in shards: with rates and without, lossy and with jitter, which change while workloads run.
func TestLinksInWindows(t *testing.T) {
	inWindows := 0
	for seed := range uint64(40) {
		topo, err := topology.Parse("soak.ndklab.yaml", []byte(newLinkPlan(seed).file()))
		if err != nil {
			t.Fatal(err)
		}
		inWindows += compare(t, topo.Draw(seed), 10, 2)
	}
	if inWindows < 30_000 {
		t.Errorf("%d events in windows, want more", inWindows)
	}
}

// A window ends before a host may have something to tell, and none begins while hosts are not all there, or links have changed.
func TestCalm(t *testing.T) {
	const begin, end = time.Second, 2 * time.Second
	for _, c := range []struct {
		name   string
		change func(*lab)
		want   time.Duration
	}{
		{"all is as it was", func(*lab) {}, end},
		{"links have changed", func(l *lab) { l.network.changed() }, begin},
		{"a host is paused", func(l *lab) { l.network.byName["a"].pause() }, begin},
		{"a host is down", func(l *lab) { l.network.byName["a"].end() }, begin},
		{"a server ends", func(l *lab) { endServer(t, l) }, begin + turnaround},
		{"a server ends, and a packet is about to be handed over", func(l *lab) {
			endServer(t, l)
			p := l.network.byName["a"].life.port
			p.take(p.shard.frames.get(nil, false))
		}, -1},
	} {
		topo := parsed(t, lossOfAll)
		l, err := newLab(topo, Options{}, spread(topo, 2))
		if err != nil {
			t.Fatal(err)
		}
		defer l.close()
		c.change(l)
		if c.want < 0 {
			c.want = l.network.byName["a"].life.port.delivers
		}
		if got := l.windows.calmUntil(begin, end); got != c.want {
			t.Errorf("%s: calm until %v, want %v", c.name, got, c.want)
		}
	}
}

// endServer has a host begin to end a server.
func endServer(t *testing.T, l *lab) {
	host := l.network.byName["a"].life.host
	spec := workload.Spec{Name: "s", Operation: topology.Write, Size: 1, Depth: 1}
	if err := host.Serve(spec, netip.AddrPortFrom(l.network.byName["a"].addresses[0], 4000)); err != nil {
		t.Fatal(err)
	}
	if err := host.Unserve("s", 0, func(workload.ServerResult) {}); err != nil {
		t.Fatal(err)
	}
}

// lossOfAll is a workload whose packets are all lost from some time on, which nobody foresees: its queue pairs go to error.
const lossOfAll = `
topology:
  nodes: {a: {}, b: {}}
  links:
    - {endpoints: ["a:eth0", "b:eth0"], delay: 50us, rate: 10gbit}
workloads:
  - {name: w, from: a, to: b, operation: write, size: 64KiB, duration: 20s}
timeline:
  - {at: 10ms, link: "a:eth0", set: {loss: 100%}}
`

// A run that meets in a window what nobody foresaw begins anew without shards. Nothing is told twice, and the report is the same.
func TestUnforeseen(t *testing.T) {
	topo := parsed(t, lossOfAll)
	if _, _, err := runInWindows(t, topo, spread(topo, 2), 1); !errors.Is(err, errUnforeseen) {
		t.Fatalf("error %v, want one that says that the end of a queue pair was not foreseen", err)
	}
	type told struct {
		report string
		events []event.Event
		back   bool // time went back
	}
	tell := func(s sharding) (result told) {
		var last time.Duration
		o := Options{
			Events: func(e event.Event) { result.events = append(result.events, e) },
			Reached: func(at time.Duration) {
				result.back = result.back || at < last
				last = at
			},
		}
		r, err := runAnew(context.Background(), topo, o, s)
		if err != nil {
			t.Fatal(err)
		}
		result.report = lines(t, r)
		return result
	}
	want, got := tell(unsharded), tell(spread(topo, 2))
	if got.report != want.report {
		t.Error(firstDifference(want.report, got.report))
	}
	if len(got.events) != len(want.events) || len(want.events) < 3 {
		t.Errorf("%d events were told, want %d", len(got.events), len(want.events))
	}
	for i := range min(len(got.events), len(want.events)) {
		if !reflect.DeepEqual(got.events[i], want.events[i]) {
			t.Errorf("event %d is %v, want %v", i, got.events[i], want.events[i])
		}
	}
	if got.back {
		t.Error("the time that was told went back")
	}
}

// A deadlock that comes in a window has the run begin anew, too, before queue pairs go to error for it: nobody has looked for it
// where it came.
func TestDeadlockInWindow(t *testing.T) {
	topo := read(t, "../../../examples/congestion/ring-deadlock.ndklab.yaml")
	topo = topo.Draw(topo.Seed)
	l, err := newLab(topo, Options{}, spreadAnyhow(topo, 2))
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	if _, err := l.play(t.Context(), topo, Options{}); !errors.Is(err, errUnforeseen) || l.windows.told.Load() {
		t.Errorf("error %v, want one for the deadlock; a host had something to tell: %v", err, l.windows.told.Load())
	}
}

// within is two sites far from each other, and flows in each of them.
const within = `
topology:
  nodes: {a: {}, b: {}, s: {kind: switch}, c: {}, d: {}, r: {kind: switch}}
  defaults: {link: {rate: 10gbit}%[1]s}
  links:
    - {endpoints: ["a:eth0", "s:p0"]}
    - {endpoints: ["b:eth0", "s:p1"]}
    - {endpoints: ["c:eth0", "r:p0"]}
    - {endpoints: ["d:eth0", "r:p1"]}
    - {endpoints: ["s:t", "r:t"], delay: 1ms}
workloads:
  - {name: w, from: a, to: b, operation: write, size: 64KiB, %[2]s}
  - {name: v, from: d, to: c, operation: write, size: 64KiB, %[2]s}
`

// A flow between hosts of one shard is not over in the window in which it begins to end.
func TestEndsWithinShard(t *testing.T) {
	for _, end := range []string{"count: 100", "count: 333", "duration: 3ms"} {
		topo := parsed(t, fmt.Sprintf(within, "", end))
		if compare(t, topo, 10, 2) == 0 {
			t.Error("nothing has happened in windows")
		}
	}
}

// An interrupted run has the report of what was until then, also where flows end so fast that it would have to begin anew.
func TestInterruptedInWindows(t *testing.T) {
	topo := parsed(t, fmt.Sprintf(within, ", adapter: {turnaround: 0s}", "duration: 10s"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o := Options{Reached: func(at time.Duration) {
		if at > 50*time.Millisecond {
			cancel()
		}
	}}
	r, err := runAnew(ctx, topo, o, spread(topo, 2))
	if !errors.Is(err, context.Canceled) || r == nil || !r.Interrupted || r.Seconds < 0.05 {
		t.Errorf("error %v, report %+v", err, r)
	}
}

// Where no window can begin, or none is worth it, the next is tried ever later.
func TestPutOff(t *testing.T) {
	topo := parsed(t, lossOfAll)
	l, err := newLab(topo, Options{}, spread(topo, 2))
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	l.network.byName["a"].pause()
	for _, want := range []int{20, 40, 80, 160, 320, 640, 1280, 1280} {
		l.windows.wait = 0
		if _, err := l.step(); err != nil || l.windows.wait != want {
			t.Fatalf("the next window is tried after %d events, want %d; error %v", l.windows.wait, want, err)
		}
	}
}

// Shards that are sent more frames than they send do not keep the others, in windows and between them.
func TestFramesOfShards(t *testing.T) {
	topo := parsed(t, `
topology:
  nodes: {a: {}, b: {}}
  links:
    - {endpoints: ["a:eth0", "b:eth0"], delay: 5us, rate: 10gbit}
workloads:
  - {name: w, from: a, to: b, operation: write, size: 64KiB, duration: 20ms}
`)
	for _, windows := range []bool{true, false} {
		l, err := newLab(topo, Options{}, spread(topo, 2))
		if err != nil {
			t.Fatal(err)
		}
		defer l.close()
		if !windows {
			l.beginNoWindows()
		}
		if _, err := l.play(t.Context(), topo, Options{}); err != nil {
			t.Fatal(err)
		}
		for i, s := range l.network.shards {
			idle := 0
			for f := s.frames.idle; f != nil; f = f.next {
				idle++
			}
			if idle > 1000 {
				t.Errorf("windows %v: shard %d keeps %d frames", windows, i, idle)
			}
		}
	}
}
