package lab

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestParseCondition(t *testing.T) {
	for text, want := range map[string]Condition{
		"ready":                        {State: Ready},
		"down":                         {State: Down},
		"workload=bulk":                {Workload: "bulk"},
		"Connect>=2":                   {Counter: "Connect", Relation: ">=", Value: 2},
		"packets_sent > 10":            {Counter: "packets_sent", Relation: ">", Value: 10},
		"ActiveConnection<1":           {Counter: "ActiveConnection", Relation: "<", Value: 1},
		"cnps_received<=0":             {Counter: "cnps_received", Relation: "<=", Value: 0},
		"Accept==18446744073709551615": {Counter: "Accept", Relation: "==", Value: 1<<64 - 1},
	} {
		got, err := ParseCondition(text)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v %s", text, err, diff)
		}
		if again, err := ParseCondition(got.String()); again != got || err != nil {
			t.Errorf("%s: %s is read as %+v, %v", text, got, again, err)
		}
	}
	for _, text := range []string{"", "Ready", "up", "workload=", "workload", "Connect=2", "Connect>=", ">=2", "Connect>=-1", "Connect>=2x", "Connect>=1.5", "Accept>18446744073709551616"} {
		if got, err := ParseCondition(text); err == nil {
			t.Errorf("%q is taken for %+v", text, got)
		}
	}
}

func TestConditionHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value, bound := rapid.Uint64Range(0, 5).Draw(t, "value"), rapid.Uint64Range(0, 5).Draw(t, "bound")
		for relation, want := range map[string]bool{
			">=": value >= bound, ">": value > bound, "==": value == bound, "<=": value <= bound, "<": value < bound,
		} {
			if (Condition{Counter: "c", Relation: relation, Value: bound}).holds(value) != want {
				t.Errorf("%d %s %d: %v", value, relation, bound, !want)
			}
		}
	})
}
