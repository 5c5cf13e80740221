package congestion

import (
	"testing"
	"time"
)

func TestNotifier(t *testing.T) {
	c := ConnectXCNP()
	var n Notifier
	for _, m := range []struct {
		now    time.Duration
		called bool
	}{
		{0, true}, // the first always
		{1, false},
		{4*us - 1, false}, // counted from the last that was called for
		{4 * us, true},
		{8*us - 1, false},
		{9 * us, true},
		{12 * us, false},
		{13 * us, true},
	} {
		if got := n.Marked(m.now, &c); got != m.called {
			t.Errorf("marked at %v: %v, want %v", m.now, got, m.called)
		}
	}
}

func TestNotifierWithoutMinTime(t *testing.T) {
	var n Notifier
	for range 3 {
		if !n.Marked(5, &CNP{}) {
			t.Error("no CNP")
		}
	}
}
