// Package leak fails tests whose goroutines stay behind. It is go.uber.org/goleak with
// patience: a goroutine that is about to end may wait longer for a processor than the half
// second that goleak has for it, on a machine that runs the tests of several packages.
//
// Main is for all tests of a package, Check for one.
package leak

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience bounds the time in which goroutines end.
const patience = 30 * time.Second

// Main runs the tests of a package, and ends the process with a status other than 0 if one
// fails or if goroutines are left. It is called by TestMain.
func Main(m *testing.M, options ...goleak.Option) {
	goleak.VerifyTestMain(patient{m, options}, options...)
}

type patient struct {
	*testing.M
	options []goleak.Option
}

func (p patient) Run() int {
	code := p.M.Run()
	if code == 0 {
		_ = find(patience, p.options...) // goleak says which are left
	}
	return code
}

// Check returns a function that fails t if there are goroutines that were not there
// before Check:
//
//	defer leak.Check(t)()
func Check(t testing.TB) func() {
	return check(t, patience)
}

func check(t testing.TB, limit time.Duration) func() {
	before := goleak.IgnoreCurrent()
	return func() {
		t.Helper()
		if err := find(limit, before); err != nil {
			t.Error(err)
		}
	}
}

// find says which goroutines are left when the limit is over, if any are until then.
func find(limit time.Duration, options ...goleak.Option) (err error) {
	for deadline := time.Now().Add(limit); ; {
		last := time.Now().After(deadline) // before it looks, as this process may have slept
		if err = goleak.Find(options...); err == nil || last {
			return err
		}
	}
}
