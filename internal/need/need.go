// Package need has a test that lacks something of its machine (a program, a library, a right) skipped,
// or failed where all of it is required.
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

// mark begins the message of a test that is skipped here.
const mark = "this machine lacks something: "

// Required reports whether Variable is set.
func Required() bool { return os.Getenv(Variable) != "" }

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
