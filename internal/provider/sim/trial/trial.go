// Package trial is the harness of trials of whole adapters on a simulated network, by whichever interface they are used.
// It has a seed from which everything follows, the event loop in virtual time, links with faults between hosts, the
// model of memory in which whatever changes must be explained, the checks of reliable connections on the wire, and the
// report of a failure.
//
// It knows nothing of objects, requests or their statuses. The packages beside it have what happens on the hosts and how
// it may end: soak for NDKPI, verbsoak for verbs. Package trialtest plays many seeds.
//
// Start reading at Trial; plan.go has what a seed decides, fabric.go the network, port.go a device's place there,
// memory.go and stream.go the checks.
package trial

import (
	"fmt"
	"io"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/sim"
	"github.com/ndklab/ndklab/provider/clock"
)

// A Failure is an invariant that did not hold.
type Failure struct {
	Seed      uint64
	At        time.Duration // virtual time
	Event     uint64        // number of the event of the clock
	Invariant string
	Detail    string
	Stack     []byte // of a panic in the code under test; nil otherwise
}

// Error implements error.
func (f *Failure) Error() string {
	s := fmt.Sprintf("seed %d, event %d at %v: %s: %s", f.Seed, f.Event, f.At, f.Invariant, f.Detail)
	if f.Stack != nil {
		s += "\n" + string(f.Stack)
	}
	return s
}

// A Report says what a trial did.
type Report struct {
	Digest   uint64 // of everything that happened, in order
	Events   uint64 // of the clock
	Lasted   time.Duration
	Coverage Coverage
}

// A Trial is one seed's scenario while it is played. Everything happens on one
// goroutine, within events of the clock.
type Trial struct {
	Seed     uint64
	Rand     *rand.Rand // what is to happen; devices and the fabric have sources of their own
	Clock    *clock.Virtual
	Coverage Coverage
	Events   uint64
	Fabric   *Fabric // made by Prepare
	Network  *sim.Network
	Ending   bool // Calm has been called
	// Follow is called after each event. Unfinished describes what has not come to its end, when something should have.
	Follow     func()
	Unfinished func() string
	// Tamper, unless it is nil, may change what comes to a device, or drop it by returning false, when the ICRC has been
	// verified: to see whether what follows is noticed.
	Tamper func(*roce.Received) bool

	plan    *Plan
	touched []*Port // that packets came to in this event

	digest       digest
	journal      io.Writer
	journalError error
}

// maxEvents is more than any scenario takes: one that takes more goes round in
// circles.
const maxEvents = 1_000_000

// New makes a seed's trial. journal, unless it is nil, is written a line for
// each thing that happens.
func New(seed uint64, journal io.Writer) *Trial {
	return &Trial{
		Seed: seed, Rand: rand.New(rand.NewPCG(seed, 1)), Clock: clock.NewVirtual(),
		Coverage: Coverage{}, journal: journal,
	}
}

// Attempt plays, and returns what kept it from coming to the end: a *Failure, or an error of the
// journal.
func (t *Trial) Attempt(play func()) (err error) {
	defer func() {
		var failure *Failure
		switch p := recover().(type) {
		case nil:
		case *Failure:
			failure = p
		default:
			failure = t.failure("no panic", fmt.Sprint(p))
			failure.Stack = debug.Stack()
		}
		if failure != nil {
			t.Logf("%v", failure)
			err = failure
		} else {
			err = t.journalError
		}
	}()
	play()
	return nil
}

// Step plays the next event; false if there is none.
func (t *Trial) Step() bool {
	if !t.Clock.Step() {
		return false
	}
	t.Events++
	if t.Events == maxEvents {
		t.Fail("an end to activity", "%d events", t.Events)
	}
	for _, p := range t.touched {
		p.host.CheckMemory()
		p.touched = false
	}
	t.touched = t.touched[:0]
	t.Follow()
	return true
}

// RunFor plays for a time.
func (t *Trial) RunFor(d time.Duration) {
	over := false
	t.Clock.AfterFunc(d, func() { over = true })
	for !over {
		t.Step()
	}
}

// RunUntil plays until done, which has to be so within limit.
func (t *Trial) RunUntil(what string, limit time.Duration, done func() bool) {
	late := false
	timer := t.Clock.AfterFunc(limit, func() { late = true })
	for !done() {
		if late {
			t.Fail("no deadlock", "%s: not within %v%s", what, limit, t.Unfinished())
		}
		t.Step()
	}
	timer.Stop()
}

// Later has f called within d from now, after a random time.
func (t *Trial) Later(d time.Duration, f func()) {
	t.Clock.AfterFunc(time.Duration(t.Rand.Int64N(int64(d)+1)), f)
}

// Chance is true with probability p.
func (t *Trial) Chance(p float64) bool { return t.Rand.Float64() < p }

// Pick returns a random element; the zero value if there is none.
func Pick[T any](random *rand.Rand, from []T) (one T) {
	if len(from) > 0 {
		one = from[random.IntN(len(from))]
	}
	return one
}

func (t *Trial) failure(invariant, detail string) *Failure {
	return &Failure{Seed: t.Seed, At: t.Clock.Now(), Event: t.Events, Invariant: invariant, Detail: detail}
}

// Fail ends the trial.
func (t *Trial) Fail(invariant, format string, args ...any) {
	panic(t.failure(invariant, fmt.Sprintf(format, args...)))
}

// Journals reports whether there is a journal.
func (t *Trial) Journals() bool { return t.journal != nil }

// Logf writes a line of the journal.
func (t *Trial) Logf(format string, args ...any) {
	if t.journal == nil || t.journalError != nil {
		return
	}
	_, t.journalError = fmt.Fprintf(t.journal, "%v %s\n", t.Clock.Now(), fmt.Sprintf(format, args...))
}

// Note adds to the digest of what happened.
func (t *Trial) Note(words ...uint64) { t.digest.add(words...) }

// Report says what has happened so far.
func (t *Trial) Report() Report {
	return Report{Digest: uint64(t.digest), Events: t.Events, Lasted: t.Clock.Now(), Coverage: t.Coverage}
}

// A digest is a running hash (FNV-1a by words) of what happened.
type digest uint64

func (d *digest) add(words ...uint64) {
	for _, w := range words {
		*d = (*d ^ digest(w)) * 0x100000001B3
		*d ^= *d >> 29
	}
}
