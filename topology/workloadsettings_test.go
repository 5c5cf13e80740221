package topology

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// threeNodes are hosts around a switch, and one that is apart.
func threeNodes(t *testing.T) *Topology {
	t.Helper()
	lab, err := Parse("lab.yaml", []byte(`
seed: 7
topology:
  nodes: {a: , b: , c: , s: {kind: switch}, far: , away: }
  links:
    - endpoints: ["a:eth0", "s:p1"]
    - endpoints: ["b:eth0", "s:p2"]
    - endpoints: ["c:eth0", "s:p3"]
    - endpoints: ["far:eth0", "away:eth0"]
`))
	if err != nil {
		t.Fatal(err)
	}
	return lab
}

// TestParseWorkload has settings make the workload that a file makes of the same keys.
func TestParseWorkload(t *testing.T) {
	lab := threeNodes(t)
	for text, want := range map[string]Workload{
		"name=w operation=write from=a to=b size=[4KiB,64KiB] depth=8 duration=2s completion=poll rate=1gbit": {
			Name: "w", Operation: Write, Pattern: Pair, From: "a", To: "b", Flows: []Flow{{"a", "b"}}, Size: 64 << 10, Sizes: []uint64{4 << 10, 64 << 10},
			Measure: Bandwidth, Depth: 8, QPs: 1, Duration: 2 * time.Second, Polling: true, Rate: 1e9,
		},
		"name=w operation=send measure=latency pattern=incast to=c nodes=[a,b] size={mix:[1B,2B]} count=10 verify=true": {
			Name: "w", Operation: Send, Pattern: Incast, Nodes: []string{"c", "a", "b"}, Flows: []Flow{{"a", "c"}, {"b", "c"}},
			Size: 2, Sizes: []uint64{1, 2}, Mixed: true, Measure: Latency, Depth: 1, QPs: 1, Count: 10, Verify: true,
		},
	} {
		got, err := lab.ParseWorkload(settingsOf(text))
		got.Place = Place{}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v\n-want +got:\n%s", text, err, diff)
		}
	}
	drawn, err := lab.ParseWorkload(settingsOf("name=w operation=send pattern=permutation nodes=[a,b,c] size=1B count=1"))
	if err != nil || len(drawn.Flows) != 3 {
		t.Errorf("%+v, %v", drawn.Flows, err)
	}
}

// settingsOf are the settings between spaces, with a space after each comma and colon.
func settingsOf(text string) []string {
	settings := strings.Split(text, " ")
	for i := range settings {
		settings[i] = strings.NewReplacer(",", ", ", ":", ": ").Replace(settings[i])
	}
	return settings
}

// badWorkloads are settings, and how the errors begin that they give.
var badWorkloads = map[string]string{
	goodWorkload + "size":                                    `found "size", expected KEY=VALUE such as size=64KiB`,
	goodWorkload + "deepth=3":                                `deepth: unknown key "deepth" in a workload, expected "depth"?`,
	goodWorkload + "depth=0":                                 `depth: 0 is out of range, expected 1 to 4096`,
	goodWorkload + "rate=1":                                  `rate: 1 has no unit, expected a rate (1mbit?)`,
	goodWorkload + "depth={":                                 `depth: not YAML: `,
	goodWorkload + "inline=maybe":                            `inline: `,
	goodWorkload + "depth=2 measure=latency":                 `depth: key depth stands with measure latency, expected none: one message is in flight`,
	"name=w operation=write from=a to=d size=1B count=1":     `to: unknown node "d", expected one of a, b, c, s, far, away`,
	"name=w operation=write from=a to=s size=1B count=1":     `to: s is a switch, expected a host: workloads run in hosts`,
	"name=w operation=write from=a to=far size=1B count=1":   `to: no link, switch or router joins a and far, expected nodes that are joined: hosts do not forward`,
	"name=w operation=write from=a to=b size=1B":             `the workload has no count and no duration, expected one of them`,
	"name=w operation=write from=a to=b size=x count=y":      "size: ",
	"name=w operation=write from=a to=b size=1B count=1 s=3": `s: unknown key "s"`,
}

const goodWorkload = "name=w operation=write from=a to=b size=1B count=1 "

func TestParseWorkloadErrors(t *testing.T) {
	lab := threeNodes(t)
	for text, want := range badWorkloads {
		_, err := lab.ParseWorkload(settingsOf(text))
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s:\n got %v\nwant %s...", text, err, want)
		}
	}
	if _, err := lab.ParseWorkload(settingsOf("name=w operation=write from=a to=b size=x count=y")); strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("not a line for each: %v", err)
	}
}

// TestOnly leaves the topology itself as it is.
func TestOnly(t *testing.T) {
	lab := threeNodes(t)
	lab.Workloads, lab.Timeline, lab.Chaos = []Workload{{Name: "its own"}}, make([]Event, 1), make([]Chaos, 1)
	lab.Checks, lab.Baseline = make([]Check, 1), new(Baseline)
	before := *lab
	want := *lab
	want.Workloads, want.Timeline, want.Chaos, want.Checks, want.Baseline = []Workload{{Name: "another"}}, nil, nil, nil, nil
	if got := lab.Only(Workload{Name: "another"}); !reflect.DeepEqual(got, &want) {
		t.Errorf("got %+v", got)
	}
	if !reflect.DeepEqual(lab, &before) {
		t.Errorf("it is changed: %+v", lab)
	}
}
