package live

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/report"
)

// Each change has a command that does the same, quoted for a shell.
func TestCommand(t *testing.T) {
	for want, c := range map[string]Change{
		"ndklab link set pair/a:eth0 delay=1ms loss=1%":             {Act: "set", Endpoint: "a:eth0", Settings: []string{"delay=1ms", "loss=1%"}},
		"ndklab link set pair/a:eth0 'loss={rate: 1%}' --from a":    {Act: "set", Endpoint: "a:eth0", From: "a", Settings: []string{"loss={rate: 1%}"}},
		"ndklab link reset pair/a:eth0":                             {Act: "reset", Endpoint: "a:eth0"},
		"ndklab link reset pair/a:eth0 --from b":                    {Act: "reset", Endpoint: "a:eth0", From: "b"},
		"ndklab link down pair/a:eth0":                              {Act: "cut", Endpoint: "a:eth0"},
		"ndklab link set pair/a:eth0 cut=true --from b":             {Act: "cut", Endpoint: "a:eth0", From: "b"},
		"ndklab link up pair/a:eth0":                                {Act: "heal", Endpoint: "a:eth0"},
		"ndklab link set pair/a:eth0 cut=none --from b":             {Act: "heal", Endpoint: "a:eth0", From: "b"},
		"ndklab link partition pair a,b c":                          {Act: "partition", Sets: [][]string{{"a", "b"}, {"c"}}},
		"ndklab link heal pair":                                     {Act: "unpartition"},
		"ndklab pause pair/a":                                       {Act: "pause", Node: "a"},
		"ndklab resume pair/a":                                      {Act: "resume", Node: "a"},
		"ndklab stop pair/a":                                        {Act: "stop", Node: "a"},
		"ndklab start pair/a":                                       {Act: "start", Node: "a"},
		"ndklab restart pair/a":                                     {Act: "restart", Node: "a"},
		"ndklab perf pair write-bw --from a --to b":                 {Act: "perf", Node: "a", To: "b", Settings: []string{"test=write-bw"}},
		"ndklab perf pair send-lat --from a --to b --size=4KiB":     {Act: "perf", Node: "a", To: "b", Settings: []string{"size=4KiB", "test=send-lat"}},
		`ndklab kill 'pair/it'\''s'`:                                {Act: "kill", Node: "it's"},
		"ndklab link set pair/a:eth0 'faults=[$(x)]' 'loss=`y`' ''": {Act: "set", Endpoint: "a:eth0", Settings: []string{"faults=[$(x)]", "loss=`y`", ""}},
	} {
		if got := c.Command("pair"); got != want {
			t.Errorf("%+v: %s, want %s", c, got, want)
		}
	}
}

// A change that names nothing, or something else than one thing, is refused with what was expected.
func TestCheck(t *testing.T) {
	for _, c := range []struct {
		change Change
		want   string // "": it is fine
	}{
		{Change{Act: "set", Endpoint: "a:eth0", Settings: []string{"loss=1%"}}, ""},
		{Change{Act: "cut", Endpoint: "a:eth0", From: "a"}, ""},
		{Change{Act: "unpartition"}, ""},
		{Change{Act: "partition", Sets: [][]string{{"a"}}}, ""},
		{Change{Act: "perf", Node: "a", To: "b", Settings: []string{"test=write-bw", "duration=1s"}}, ""},
		{Change{}, `act "": expected one of set, reset, cut, heal, partition, unpartition, pause, resume, stop, start, restart, kill, perf`},
		{Change{Act: "reboot"}, `act "reboot": expected one of`},
		{Change{Act: "set", Endpoint: "a", Settings: []string{"loss=1%"}}, `endpoint "a": expected an end of a link, NODE:IFACE`},
		{Change{Act: "set", Endpoint: "a*:eth0", Settings: []string{"loss=1%"}}, `endpoint "a*:eth0": expected`},
		{Change{Act: "cut", Endpoint: "--all:eth0"}, `endpoint "--all:eth0": expected`},
		{Change{Act: "cut", Endpoint: "other/a:eth0"}, `endpoint "other/a:eth0": expected`},
		{Change{Act: "set", Endpoint: "a:eth0"}, "nothing to set, expected KEY=VALUE such as loss=1% or rate=none"},
		{Change{Act: "set", Endpoint: "a:eth0", Settings: []string{"los=1%"}}, `unknown key "los"`},
		{Change{Act: "set", Endpoint: "a:eth0", Settings: []string{"--from=b"}}, `unknown key "--from"`},
		{Change{Act: "reset", Endpoint: "a:eth0", From: "a,b"}, `from "a,b": expected the name of a node`},
		{Change{Act: "stop", Node: "h[1-8]"}, `node "h[1-8]": expected the name of a node`},
		{Change{Act: "stop"}, `node "": expected the name of a node`},
		{Change{Act: "partition"}, "sets: found none, expected lists of nodes"},
		{Change{Act: "partition", Sets: [][]string{{"a"}, {}}}, "sets: found an empty one, expected a list of nodes"},
		{Change{Act: "partition", Sets: [][]string{{"a", "-t"}}}, `sets "-t": expected the name of a node`},
		{Change{Act: "perf", Node: "a", To: "b"}, "settings: test=: there is no test"},
		{Change{Act: "perf", Node: "a", Settings: []string{"test=write-bw"}}, `to "": expected the name of a node`},
		{Change{Act: "perf", Node: "a", To: "b", Settings: []string{"test=write-bw", "memory=1"}}, `settings: "memory=1": expected test=TEST, size=SIZE`},
		{Change{Act: "perf", Node: "a", To: "b", Settings: []string{"test=write-bw", "size=[1KiB, 2KiB]"}}, "expected one value"},
	} {
		switch err := c.change.Check(); {
		case c.want == "" && err != nil, c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || control.CodeOf(err) != control.Usage):
			t.Errorf("%+v: %v, want %q", c.change, err, c.want)
		}
	}
}

// Each change is undone by what was before it. A change that changed nothing is not undone.
func TestUndo(t *testing.T) {
	link := func(state string, a, b []string) *Standing {
		return &Standing{Link: &report.Link{Endpoints: [2]string{"a:eth0", "b:eth1"}, State: state, Directions: [2]report.Direction{{Settings: a}, {Settings: b}}}}
	}
	node := func(state string) *Standing { return &Standing{Node: state} }
	set := func(from string, settings ...string) Change {
		return Change{Act: "set", Endpoint: "b:eth1", From: from, Settings: settings}
	}
	parts := [][]string{{"a"}}
	for _, c := range []struct {
		change        Change
		before, after *Standing
		want          []Change
	}{
		{set("", "loss=1%"), link("up", nil, nil), link("up", []string{"loss=1%"}, []string{"loss=1%"}), []Change{set("", "loss=0%")}},
		{set("", "loss=1%"), link("up", []string{"delay=1ms"}, []string{"delay=2ms"}), link("up", []string{"delay=1ms", "loss=1%"}, []string{"delay=2ms", "loss=1%"}), []Change{set("", "loss=0%")}},
		{set("", "loss=1%"), link("up", []string{"loss=2%"}, nil), link("up", []string{"loss=1%"}, []string{"loss=1%"}), []Change{set("a", "loss=2%"), set("b", "loss=0%")}},
		{set("b", "delay=3ms"), link("up", nil, []string{"delay=1ms", "jitter={spread: 50us, distribution: normal}"}), link("up", nil, []string{"delay=3ms", "jitter={spread: 50us, distribution: normal}"}), []Change{set("b", "delay=1ms")}},
		{set("", "loss=1%"), link("up", []string{"loss=1%"}, []string{"loss=1%"}), link("up", []string{"loss=1%"}, []string{"loss=1%"}), nil},
		{Change{Act: "reset", Endpoint: "b:eth1"}, link("up", []string{"rate=1gbit", "queue=1MiB"}, nil), link("up", []string{"delay=1ms"}, nil), []Change{set("a", "delay=0ms", "rate=1gbit", "queue=1MiB")}},
		{Change{Act: "cut", Endpoint: "b:eth1", From: "a"}, link("up", nil, nil), link("up", []string{"cut=true"}, nil), []Change{set("a", "cut=false")}},
		{Change{Act: "cut", Endpoint: "b:eth1"}, link("up", nil, nil), link("down", nil, nil), []Change{{Act: "heal", Endpoint: "b:eth1"}}},
		{Change{Act: "cut", Endpoint: "b:eth1"}, link("down", nil, nil), link("down", nil, nil), nil},
		{Change{Act: "heal", Endpoint: "b:eth1"}, link("down", nil, nil), link("up", nil, nil), []Change{{Act: "cut", Endpoint: "b:eth1"}}},
		{Change{Act: "heal", Endpoint: "b:eth1"}, link("up", nil, nil), link("up", nil, nil), nil},
		{Change{Act: "partition", Sets: parts}, &Standing{}, &Standing{Partition: parts}, []Change{{Act: "unpartition"}}},
		{Change{Act: "partition"}, &Standing{Partition: parts}, &Standing{}, []Change{{Act: "partition", Sets: parts}}},
		{Change{Act: "unpartition"}, &Standing{Partition: parts}, &Standing{}, []Change{{Act: "partition", Sets: parts}}},
		{Change{Act: "unpartition"}, &Standing{}, &Standing{}, nil},
		{Change{Act: "pause", Node: "a"}, node("ready"), node("paused"), []Change{{Act: "resume", Node: "a"}}},
		{Change{Act: "resume", Node: "a"}, node("paused"), node("ready"), []Change{{Act: "pause", Node: "a"}}},
		{Change{Act: "stop", Node: "a"}, node("ready"), node("down"), []Change{{Act: "start", Node: "a"}}},
		{Change{Act: "stop", Node: "a"}, node("down"), node("down"), nil},
		{Change{Act: "kill", Node: "a"}, node("ready"), node("down"), []Change{{Act: "start", Node: "a"}}},
		{Change{Act: "kill", Node: "a"}, node("ready"), node("starting"), nil},
		{Change{Act: "start", Node: "a"}, node("down"), node("ready"), []Change{{Act: "stop", Node: "a"}}},
		{Change{Act: "start", Node: "a"}, node("ready"), node("ready"), nil},
		{Change{Act: "restart", Node: "a"}, node("ready"), node("ready"), nil},
		{Change{Act: "perf", Node: "a", To: "b"}, &Standing{}, &Standing{}, nil},
	} {
		got, err := c.change.Undo(c.before, c.after)
		if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
			t.Errorf("%+v: %v %s", c.change, err, diff)
		}
	}
}
