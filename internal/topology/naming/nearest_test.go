package naming

import (
	"strings"
	"testing"
)

func TestSuggestable(t *testing.T) {
	long := strings.Repeat("x", suggestable+1)
	if got, ok := Nearest(long, []string{long[1:]}); ok {
		t.Errorf("a word too long is near to %s", got)
	}
}

func TestNearest(t *testing.T) {
	tests := []struct {
		word, want string // "": none is near
	}{
		{"delay", "delay"}, {"dealy", "delay"}, {"dely", "delay"}, {"deelay", "delay"}, {"relay", "delay"}, {"DELAY", "delay"},
		{"jit", "jitter"}, {"mru", "mtu"}, {"mt", "mtu"}, {"xy", ""}, {"m", ""}, {"", ""}, {"latency", ""}, {"display", ""},
	}
	for _, test := range tests {
		if got, _ := Nearest(test.word, []string{"jitter", "delay", "mtu"}); got != test.want {
			t.Errorf("nearest to %q is %q, want %q", test.word, got, test.want)
		}
	}
}
