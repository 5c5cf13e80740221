package main

import (
	"testing"

	"github.com/ndklab/ndklab/internal/node"
)

// TestOutcome has everything that enabling and disabling can end in, also with
// consumers that do not close what they have open.
func TestOutcome(t *testing.T) {
	for _, test := range []struct {
		change node.StateChange
		enable bool
		text   string
		done   bool
	}{
		{node.StateChange{Enabled: true}, true, "is enabled", true},
		{node.StateChange{Was: true, Enabled: true, Open: 1, Left: 1}, true, "is enabled already", true},
		{node.StateChange{Open: 2, Left: 1}, true, "is not enabled yet: instances still open from before it was disabled: 1", false},
		{node.StateChange{Was: true, Open: 2}, false, "is disabled; open instances that were closed: 2", true},
		{node.StateChange{Was: true, Open: 2, Left: 1}, false, "is disabled; of 2 open instances 1 are not closed yet", false},
		{node.StateChange{Open: 1, Left: 1}, false, "is disabled; of 1 open instances 1 are not closed yet", false},
		{node.StateChange{}, false, "is disabled already", true},
	} {
		if text, done := outcome(&test.change, test.enable); text != test.text || done != test.done {
			t.Errorf("%+v: %q, %v", test, text, done)
		}
	}
}
