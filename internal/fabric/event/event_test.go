package event

import (
	"encoding/json"
	"net/netip"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ndklab/ndklab/provider"
)

// An event has the fields that `ndklab events -o json` and reports promise, also those that are
// zero, and comes through JSON as it was.
func TestJSON(t *testing.T) {
	ofPair := OfQPError("a", provider.QPError{Number: 7, Remote: netip.MustParseAddr("10.0.0.2"), Reason: "no answer"})
	ofPair.Lab, ofPair.Time, ofPair.At = "pair", time.Unix(1, 0).UTC(), 1234567891
	ofMany := OfQPError("a", provider.QPError{More: 3})
	ofMany.Lab, ofMany.Time = "pair", time.Unix(2, 0).UTC()
	for want, e := range map[string]Event{
		`{"lab":"pair","time":"1970-01-01T00:00:01Z","seconds":1.234567891,"kind":"qp-error","node":"a",` +
			`"qp":{"qpn":7,"remote":"10.0.0.2","reason":"no answer"},"text":"node a: queue pair 7 to 10.0.0.2 is in error: no answer"}`: ofPair,
		`{"lab":"pair","time":"1970-01-01T00:00:02Z","seconds":0,"kind":"qp-error","node":"a","qp":{"more":3},"text":"node a: 3 more queue pairs are in error"}`: ofMany,
		`{"at_seconds":0.25,"kind":"qp-error","node":"a","qp":{"more":3},"text":"node a: 3 more queue pairs are in error"}`:                                      ofMany.InReport(time.Second / 4),
		`{"at_seconds":0,"kind":"events-lost","link":"a:eth0","workload":"w","lost":2,"text":""}`:                                                                {Kind: EventsLost, Link: "a:eth0", Workload: "w", Lost: 2},
	} {
		got, err := json.Marshal(e)
		if err != nil || string(got) != want {
			t.Errorf("got %s, %v; want %s", got, err, want)
		}
		var back Event
		if err := json.Unmarshal(got, &back); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(e, back, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Error(diff)
		}
	}
}

// Every constant of a kind is in Kinds, once.
func TestKinds(t *testing.T) {
	source, err := os.ReadFile("kinds.go")
	if err != nil {
		t.Skip("the tests run without the repository")
	}
	count := map[string]int{}
	for _, k := range Kinds {
		count[k.Name]++
	}
	constants := regexp.MustCompile(`(?m)^\t\w+ += "([a-z-]+)"$`).FindAllStringSubmatch(string(source), -1)
	for _, c := range constants {
		if count[c[1]] != 1 {
			t.Errorf("Kinds has %q %d times", c[1], count[c[1]])
		}
	}
	if len(constants) != len(Kinds) {
		t.Errorf("there are %d constants and %d kinds", len(constants), len(Kinds))
	}
}
