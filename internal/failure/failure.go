// Package failure has the error that tells its reader what kind of failure it is: one of who asked, of the
// machine, or of ndklab. The command line turns the kind into an exit code.
package failure

import "fmt"

// A Code is the kind of a failure.
type Code string

// The kinds.
const (
	Usage  Code = "usage"  // the caller asked for what makes no sense or does not exist
	Unable Code = "unable" // this machine cannot do it
	Failed Code = "failed" // it should have worked
	Unmet  Code = "unmet"  // it works, but what the caller runs or checks by it does not
)

// An Error is a failure of a kind.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

func (e *Error) Error() string { return e.Message }

// Errorf makes an Error.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}
