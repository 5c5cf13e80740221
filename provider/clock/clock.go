// Package clock is the time that adapters and workloads live in: real time on a
// machine, virtual time in a simulation.
//
// Everything above the pure state machines that needs to know the time, to be
// woken later or to run something on the side asks a Clock for it, so that the
// same adapter and the same workload run on sockets in real time and in a
// simulation where a minute takes a millisecond and a seed repeats a run
// exactly. Instants are time.Durations since the clock's epoch, which is
// arbitrary: only differences mean something.
//
// Start reading at Clock; Real and Virtual are its two kinds.
package clock

import "time"

// A Clock tells time and runs functions later. Its methods may be called from
// any goroutine (of a Virtual one: from the goroutine that runs it only).
type Clock interface {
	// Now is the present instant, monotonic, since the clock's epoch.
	Now() time.Duration
	// AfterFunc runs f once, d from now, never from within the call. A d of
	// zero or less means as soon as possible.
	AfterFunc(d time.Duration, f func()) Timer
	// Go runs f soon, never from within the call, and side by side with the
	// caller where the clock is real.
	Go(f func())
}

// A Timer is a pending AfterFunc.
type Timer interface {
	// Stop prevents the function from running; false means that it has begun
	// or was stopped before.
	Stop() bool
	// Reset has the function run d from now, whether it was pending or not;
	// one that had begun runs again.
	Reset(d time.Duration) bool
}

// Real returns the clock of the machine. Its epoch is the start of the process.
func Real() Clock { return realClock{} }

var epoch = time.Now()

type realClock struct{}

func (realClock) Now() time.Duration { return time.Since(epoch) }

func (realClock) AfterFunc(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) }

func (realClock) Go(f func()) { go f() }
