// Package need has a test that lacks something of its machine (a program, a library, a right) skipped,
// or failed where all of it is required. A test that takes long is skipped until such tests are asked for.
package need

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Variable is of the environment. Not empty, it has a test fail that would be skipped for what its machine lacks.
const Variable = "NDKLAB_REQUIRED"

// LongVariable is of the environment. Not empty, it has the tests run that take long.
const LongVariable = "NDKLAB_LONG"

// mark begins the message of a test that is skipped here.
const mark = "this machine lacks something: "

// Required reports whether Variable is set.
func Required() bool { return os.Getenv(Variable) != "" }

// Long reports whether LongVariable is set.
func Long() bool { return os.Getenv(LongVariable) != "" }

// Time skips a test that takes long, unless such tests are asked for.
func Time(t testing.TB) {
	t.Helper()
	if !Long() {
		t.Skipf("this test takes long: it runs with %s=1, as in CI", LongVariable)
	}
}

// Check skips a test for want of something, or fails it where all is required. It does nothing if err is nil.
func Check(t testing.TB, err error) {
	t.Helper()
	switch {
	case err == nil:
	case Required():
		t.Fatalf("%v\n(the test is not skipped: %s is set)", err, Variable)
	default:
		t.Skip(mark + err.Error())
	}
}

// Labs skips a test that needs labs where none can run, as package doctor finds out, or fails it where all is required.
func Labs(t testing.TB, canRun bool) {
	t.Helper()
	if !canRun {
		Check(t, errors.New("labs cannot run here: `ndklab doctor` says why"))
	}
}

// Programs says which programs are not on this machine; nil if none is missing.
func Programs(names ...string) (missing error) {
	for _, name := range names {
		_, err := exec.LookPath(name)
		missing = errors.Join(missing, err)
	}
	return missing
}

// Unmet counts the tests that Check skipped, in what `go test -v` prints of one package.
func Unmet(output string) int { return strings.Count(output, mark) }
