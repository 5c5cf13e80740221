package labtest

import (
	"github.com/ndklab/ndklab/internal/fabric/doctor"
	"github.com/ndklab/ndklab/internal/fabric/lab"
)

// A process of a lab never leaves this function. It works on another goroutine than the
// one that initialises packages, which is bound to the first thread: each change between
// goroutines would be one between threads.
func init() {
	ours := make(chan struct{})
	go func() {
		lab.Child()
		doctor.Child()
		close(ours)
	}()
	<-ours
}
