package lab

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/histogram"
	"github.com/ndklab/ndklab/topology"
)

// TestObserveChanges has monitors look at a lab to which random things happen, now and then, and compares what they put together
// of changes with the lab as one sees it who never looked before.
func TestObserveChanges(t *testing.T) {
	topo, more := observable(t, ""), observable(t, ", more: ")
	l := start(t, topo)
	ctx := testContext(t)
	bounds := []int64{int64(time.Microsecond), int64(time.Hour)}
	var monitors []*Lab
	for range 3 {
		m, err := Open(ctx, topo.Name)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		monitors = append(monitors, m)
	}
	stranger, strangers := monitors[2], 0
	compare := func(m *Lab) {
		t.Helper()
		eventually(t, testTime, func() string { // what nodes send by themselves comes between the two
			strangers++
			fresh := observeBy(t, stranger, append(slices.Clone(bounds), int64(time.Hour)+int64(strangers)))
			return cmp.Diff(fresh, observeBy(t, m, bounds), cmpopts.EquateEmpty(),
				cmpopts.IgnoreFields(report.Observation{}, "Up"), cmpopts.IgnoreFields(histogram.Bars{}, "UpTo"))
		})
	}
	random := rand.New(rand.NewPCG(19, 0))
	changes := changesOf(ctx, l, topo, more)
	names := []string{}
	for range 3 { // each, several times
		for _, change := range changes {
			names = append(names, change.name)
		}
	}
	random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, name := range names {
		change := changes[slices.IndexFunc(changes, func(c labChange) bool { return c.name == name })]
		if err := change.do(); err != nil {
			t.Logf("%s: %v", name, err) // such as to stop a node that is down
		}
		compare(monitors[0])
		if random.IntN(4) == 0 {
			compare(monitors[1])
		}
		if t.Failed() {
			t.Fatalf("after %s of %v", name, names)
		}
	}
}

// observable returns the topology of a lab with links that the engine has and that the kernel joins, and more nodes.
func observable(t *testing.T, more string) *topology.Topology {
	t.Helper()
	topo, err := topology.Parse("test.ndklab.yaml", fmt.Appendf(nil, `
name: observe-%d
seed: 42
topology:
  nodes: {client: , server: , limited: {pids: 1000, cpu: 1}, s: {kind: switch}%s}
  links:
    - {endpoints: ["client:eth0", "server:eth0"], delay: 1ms, overrun: allow}
    - {endpoints: ["limited:eth0", "server:eth1"], delay: 1ms, loss: 10%%, overrun: allow}
    - {endpoints: ["limited:eth1", "s:p0"]}
    - {endpoints: ["server:eth2", "s:p1"]}
`, os.Getpid(), more))
	if err != nil {
		t.Fatal(err)
	}
	return topo
}

// observeBy observes a lab.
func observeBy(t *testing.T, l *Lab, bounds []int64) *report.Observation {
	t.Helper()
	o, err := l.Observe(testContext(t), bounds)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// A labChange is something that changes what monitors see.
type labChange struct {
	name string
	do   func() error
}

// changesOf returns what can be done to the lab of TestObserveChanges.
func changesOf(ctx context.Context, l *Lab, topo, more *topology.Topology) []labChange {
	const link = "client:eth0"
	apply := func(topo *topology.Topology) error {
		standing, err := l.Standing(ctx)
		if err != nil {
			return err
		}
		return l.Apply(ctx, topo, standing)
	}
	all := []labChange{
		{"set", func() error { return l.Links.Set(ctx, link, "", topology.Change{Delay: ref(2 * time.Millisecond)}) }},
		{"relieve", func() error { return l.Links.Set(ctx, link, "", topology.Change{Delay: ref(time.Duration(0))}) }},
		{"reset", func() error { return l.Links.Reset(ctx, link, "") }},
		{"link down", func() error { return l.Links.Down(ctx, link) }},
		{"link up", func() error { return l.Links.Up(ctx, link) }},
		{"run", func() error {
			_, err := l.RunWorkloads(ctx, topology.Workload{
				Name: "w", Operation: topology.Write, From: "client", To: "server", Flows: []topology.Flow{{From: "client", To: "server"}},
				Size: 100, Depth: 1, QPs: 1, Count: 10, Timeout: 5 * time.Second,
			})
			return err
		}},
		{"add a node", func() error { return apply(more) }},
		{"remove a node", func() error { return apply(topo) }},
	}
	for node, actions := range map[string][]topology.NodeAction{
		"client": {RestartNode}, "limited": {StopNode, StartNode, PauseNode, ResumeNode}, "s": {StopNode, StartNode},
	} {
		for _, action := range actions {
			all = append(all, labChange{string(action) + " " + node, func() error {
				_, err := l.Nodes.Change(ctx, node, action)
				return err
			}})
		}
	}
	slices.SortFunc(all, func(a, b labChange) int { return strings.Compare(a.name, b.name) }) // which a map leaves open
	return all
}

// Of bounds that nobody has asked for lately the view is gone, and another one has another id.
func TestViewsKept(t *testing.T) {
	var s views
	first := s.of([]int64{0})
	for i := range int64(mostViews) { // the last has no room
		s.of([]int64{i + 1})
		if s.of([]int64{0}) != first {
			t.Fatal("a view that was asked for again is gone")
		}
	}
	for i := int64(mostViews); i > 1; i-- {
		if v := s.of([]int64{i}); v.id != uint64(i)+1 {
			t.Errorf("of bound %d there is view %d", i, v.id)
		}
	}
	if again := s.of([]int64{1}); again.id != mostViews+2 || len(s.kept) != mostViews {
		t.Errorf("the view that was asked for least lately is kept: %d of %d", again.id, len(s.kept))
	}
}

// A look at a view waits for one that is under way, but no longer than its context.
func TestViewTurns(t *testing.T) {
	v := new(views).of(nil)
	if err := v.begin(t.Context()); err != nil || v.look != 1 {
		t.Fatal(v.look, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := v.begin(ctx); err != context.Canceled || v.look != 1 {
		t.Error(v.look, err)
	}
	v.end()
	if err := v.begin(t.Context()); err != nil || v.look != 2 {
		t.Error(v.look, err)
	}
}
