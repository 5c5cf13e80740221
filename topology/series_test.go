package topology

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A period is as precise as simulations need it, and its place is known to who refuses it.
func TestSeries(t *testing.T) {
	for text, want := range map[string]*Series{
		"series: 10us\n": {10 * time.Microsecond, Place{"dir/f.yaml", 7, 9}},
		"series: 1s\n":   {time.Second, Place{"dir/f.yaml", 7, 9}},
		"":               nil,
	} {
		if diff := cmp.Diff(want, parseScenario(t, text).Series); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
	for text, want := range map[string]string{
		"9us":    "series: 9us is out of range, expected 10us to 1s",
		"1001ms": "series: 1001ms is out of range, expected 10us to 1s",
		"often":  `series: found "often", expected a duration such as 5ms`,
	} {
		if _, err := Parse("f.yaml", []byte(scenarioLab+"series: "+text+"\n")); err == nil || err.Error() != "f.yaml:7:9: "+want {
			t.Errorf("%s: %v", text, err)
		}
	}
}
