package topology

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestSetup has every key of a setup in nodes, and what groups, kinds and defaults
// add to them.
func TestSetup(t *testing.T) {
	const text = `
topology:
  defaults:
    node:
      env: {A: defaults, B: defaults, C: defaults, D: defaults}
      exec: [echo defaults]
      healthcheck: {command: "true"}
      wait_for: [{node: first, stage: created}]
  kinds:
    k:
      kind: host
      env: {A: kind, B: kind, C: kind}
      files: {/etc/a: {content: kind}, /etc/c: {source: good.txt}}
    host:
      env: {D: host, E: host}
  groups:
    g:
      kind: k
      env: {A: group, B: group}
      files: {/etc/a: {content: group, mode: 0o755}, /etc/b: {content: group, mode: "600"}}
      exec:
        - echo group
        - {command: echo later, stage: healthy}
        - {command: echo early, stage: created}
  nodes:
    first: {wait_for: [], healthcheck: none, exec: [], env: {N: 08, T: yes}}
    all:
      group: g
      env: {A: node}
      healthcheck: {command: check, interval: 20ms, timeout: 2s, retries: 7, start_period: 0s}
      wait_for: [{node: first, stage: executed}, {node: r, stage: healthy}]
    r: {kind: router}
    s: {kind: switch}
`
	topo, err := ParseWith(Options{Read: readSamples}, "some/where/t.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	defaults := map[string]string{"A": "defaults", "B": "defaults", "C": "defaults", "D": "defaults"}
	want := map[string]Setup{
		"first": {Env: map[string]string{"A": "defaults", "B": "defaults", "C": "defaults", "D": "host", "E": "host", "N": "08", "T": "yes"}, Exec: []Exec{}},
		"all": {
			Env: map[string]string{"A": "node", "B": "group", "C": "kind", "D": "host", "E": "host"},
			Files: []File{
				{"/etc/a", 0o755, []byte("group")},
				{"/etc/b", 0o600, []byte("group")},
				{"/etc/c", 0o644, []byte(sampleFiles["good.txt"])},
			},
			Exec:        []Exec{{"echo group", Configured}, {"echo later", Healthy}, {"echo early", Created}},
			Healthcheck: &Healthcheck{"check", 20 * time.Millisecond, 2 * time.Second, 7, 0},
			WaitFor:     []Wait{{"first", Executed}, {"r", Healthy}},
		},
		"r": {
			Env: defaults, Exec: []Exec{{"echo defaults", Configured}}, Healthcheck: &Healthcheck{"true", 10 * time.Second, 5 * time.Second, 3, 30 * time.Second},
			WaitFor: []Wait{{"first", Created}},
		},
		"s": {},
	}
	for _, n := range topo.Nodes {
		if diff := cmp.Diff(want[n.Name], n.Setup); diff != "" {
			t.Errorf("%s (-want +got):\n%s", n.Name, diff)
		}
	}
}

// TestSetupIsNone tells nodes that are given nothing from all others.
func TestSetupIsNone(t *testing.T) {
	none := Setup{Exec: []Exec{}}
	if !none.None() {
		t.Errorf("%+v is something", none)
	}
	for _, s := range []Setup{
		{Env: map[string]string{"A": ""}}, {Files: make([]File, 1)}, {Exec: make([]Exec, 1)}, {Healthcheck: new(Healthcheck)}, {WaitFor: make([]Wait, 1)},
	} {
		if s.None() {
			t.Errorf("%+v is none", s)
		}
	}
}

// TestNoSources has a file that Parse does not read.
func TestNoSources(t *testing.T) {
	_, err := Parse("f.yaml", []byte("topology: {nodes: {a: {files: {/etc/a: {source: good.txt}}}}}"))
	if want := "f.yaml:1:49: " + noSources; err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// TestWaitsLeftOut has a lab of some of the nodes wait for those alone.
func TestWaitsLeftOut(t *testing.T) {
	var told []string
	topo, err := ParseWith(Options{Nodes: []string{"b", "c"}, LeftOut: func(what string) { told = append(told, what) }}, "f.yaml",
		[]byte("topology: {nodes: {a: , b: , c: {wait_for: [{node: a, stage: healthy}, {node: b, stage: created}]}}}"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Wait{{"b", Created}}, topo.Nodes[1].Setup.WaitFor); diff != "" {
		t.Errorf("c waits for (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"what c waits for: a"}, told); diff != "" {
		t.Errorf("left out (-want +got):\n%s", diff)
	}
}
