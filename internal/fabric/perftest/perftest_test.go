package perftest

import (
	"slices"
	"testing"
)

// A test has its operation and measure, what is given, and its own defaults for what is not.
func TestSettings(t *testing.T) {
	for _, c := range []struct {
		test        string
		given, want []string
	}{
		{"write-bw", nil, []string{"name=write-bw", "operation=write", "measure=bandwidth", "size=64KiB", "depth=16", "duration=2s"}},
		{"read-lat", []string{"from=a"}, []string{"name=read-lat", "operation=read", "measure=latency", "from=a", "size=8B", "duration=2s"}},
		{"send-bw", []string{"depth=4", "count=7", "size=4KiB"}, []string{"name=send-bw", "operation=send", "measure=bandwidth", "depth=4", "count=7", "size=4KiB"}},
		{"send-lat", []string{"size=all"}, []string{"name=send-lat", "operation=send", "measure=latency", "size=all", "duration=500ms"}},
		{"send-lat", []string{"size=[1KiB, 2KiB]"}, []string{"name=send-lat", "operation=send", "measure=latency", "size=[1KiB, 2KiB]", "duration=500ms"}},
		{"send-lat", []string{"size={mix: [1KiB]}", "duration=9s"}, []string{"name=send-lat", "operation=send", "measure=latency", "size={mix: [1KiB]}", "duration=9s"}},
	} {
		got, err := Settings(c.test, c.given)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s %q: %q, %v; want %q", c.test, c.given, got, err, c.want)
		}
	}
	const want = `there is no test "bw", expected send-bw, send-lat, write-bw, write-lat, read-bw, read-lat`
	if _, err := Settings("bw", nil); err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
}
