package main

import (
	"errors"
	"testing"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/suite"
)

// A suite ends with the exit code of what is worst for who reads it: a fault of ours, then
// a lab that failed, then one that could not be made.
func TestSuiteCode(t *testing.T) {
	passed := suite.Outcome{Run: &report.Run{Passed: true}}
	failed := suite.Outcome{Run: &report.Run{}}
	unmade := func(err error) suite.Outcome { return suite.Outcome{Run: &report.Run{}, Err: err} }
	taken := unmade(control.Errorf(control.Usage, "the name is taken"))
	unable := unmade(control.Errorf(control.Unable, "no room"))
	fault := unmade(errors.New("what is this"))
	for _, test := range []struct {
		name     string
		outcomes []suite.Outcome
		want     int
	}{
		{"none", nil, exitOK},
		{"passed", []suite.Outcome{passed, passed}, exitOK},
		{"failed", []suite.Outcome{passed, failed}, exitFailed},
		{"unable", []suite.Outcome{unable, passed}, exitUnable},
		{"the first that could not be made", []suite.Outcome{taken, unable}, exitUsage},
		{"failed and not made", []suite.Outcome{unable, failed, taken}, exitFailed},
		{"fault", []suite.Outcome{failed, fault, unable}, exitFault},
	} {
		if got := suiteCode(&suite.Result{Outcomes: test.outcomes}); got != test.want {
			t.Errorf("%s: exit code %d, want %d", test.name, got, test.want)
		}
	}
	if got := suiteCode(&suite.Result{Outcomes: []suite.Outcome{fault}, Interrupted: true}); got != exitInterrupted {
		t.Errorf("interrupted: exit code %d, want %d", got, exitInterrupted)
	}
}
