package labtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/doctor"
	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/need"
	"github.com/ndklab/ndklab/topology"
)

// The environment of tests.
const (
	envSeed      = "NDKLAB_SEED"      // of all labs, whatever their topologies say
	envArtifacts = "NDKLAB_ARTIFACTS" // the folder for evidence
)

// A Lab is a lab of a test's. docs/topology.md and `ndklab help` say what its methods do to
// the lab.
type Lab struct {
	t testing.TB
	*shared
}

// A shared has the state that all Labs of one lab have in common.
type shared struct {
	lab      *lab.Lab
	doc      *document
	topo     *topology.Topology
	patience time.Duration
	memory   *lab.Memory
	events   events
	story    func() string // keeps the evidence, once, and tells of it

	commands atomic.Uint64 // that have run

	// ctx ends shortly before the deadline of the test, and with the lab.
	ctx context.Context
}

// settings has the values that Options set.
type settings struct {
	seed      *uint64
	required  bool
	patience  time.Duration
	variables map[string]string
	programs  []program // of Simulate
}

// An Option is something that Up and Simulate do otherwise.
type Option func(*settings)

// Seed sets the seed of all random decisions, whatever the topology says. NDKLAB_SEED in
// the environment comes before it.
func Seed(seed uint64) Option { return func(s *settings) { s.seed = &seed } }

// Required has a test fail, not be skipped, where the machine cannot have labs.
func Required() Option { return func(s *settings) { s.required = true } }

// Patience bounds the time that methods wait for what they are to wait for, if the deadline
// of the test leaves as much; without it the bound is 30 s.
func Patience(d time.Duration) Option { return func(s *settings) { s.patience = d } }

// Variable sets a variable that the topology refers to, before those of the environment.
func Variable(name, value string) Option {
	return func(s *settings) { s.variables[name] = value }
}

func settingsOf(options []Option) (*settings, error) {
	s := &settings{
		required: need.Required(), patience: 30 * time.Second, variables: map[string]string{},
	}
	for _, o := range options {
		o(s)
	}
	if text := os.Getenv(envSeed); text != "" {
		seed, err := strconv.ParseUint(text, 0, 64)
		if err != nil {
			return nil, fmt.Errorf("%s=%s in the environment: expected a whole number", envSeed, text)
		}
		s.seed = &seed
	}
	return s, nil
}

func (s *settings) lookup(name string) (string, bool) {
	if value, ok := s.variables[name]; ok {
		return value, true
	}
	return os.LookupEnv(name)
}

// settle gives a topology its seed: the one that is asked for, its own, or one drawn.
func (s *settings) settle(topo *topology.Topology) {
	if s.seed != nil {
		topo.Seed, topo.HasSeed = *s.seed, true
	}
	if !topo.HasSeed {
		topo.Seed, topo.HasSeed = uint64(rand.Uint32()), true // short enough to be typed
	}
}

// Up makes a lab of a topology for a test, and returns when every node is ready. The lab
// is down when the test and its subtests are over. Workloads, timeline and checks of the
// topology are for Lab.Run.
//
// Where the machine cannot have labs the test is skipped, or fails (Required).
func Up[S Source](t testing.TB, source S, options ...Option) *Lab {
	t.Helper()
	set, err := settingsOf(options)
	if err != nil {
		t.Fatal(err)
	}
	if len(set.programs) > 0 {
		t.Fatal("Client and Server are options of Simulate: in a lab, Node.Do runs a function")
	}
	doc, err := read(source)
	if err != nil {
		t.Fatalf("topology: %v", err)
	}
	topo, err := doc.parse(topology.Options{Name: nameFor(doc.name), Variable: set.lookup})
	if err != nil {
		t.Fatalf("topology:\n%v", err)
	}
	set.settle(topo)
	sweep(t)

	l := &Lab{t, &shared{doc: doc, topo: topo, patience: set.patience}}
	ctx, cancel := untilDeadline(t)
	l.ctx, l.story = ctx, sync.OnceValue(l.tell)
	l.lab, err = lab.Start(ctx, topo, lab.Options{Events: l.events.add})
	if err != nil {
		cancel()
		refuse(t, set, err)
	}
	t.Cleanup(func() {
		defer cancel()
		l.down()
	})
	l.memory, err = l.lab.Remember(ctx)
	l.must(err)
	<-l.memory.Begun() // tests are short, and what went wrong may be in their first packets
	context.AfterFunc(ctx, l.late)
	t.Logf("lab %s is up: nodes: %d, links: %d, seed %d", topo.Name, len(topo.Nodes), len(topo.Links), topo.Seed)
	return l
}

// Name is the lab's name, by which `ndklab inspect` and other commands have it while the
// test runs.
func (l *Lab) Name() string { return l.topo.Name }

// Seed is the seed of all random decisions in the lab.
func (l *Lab) Seed() uint64 { return l.topo.Seed }

// Context ends shortly before the deadline of the test, or with the lab: what a test waits
// for with it fails in time for the test to say so.
func (l *Lab) Context() context.Context { return l.ctx }

// In is the lab for another test, usually a subtest of the one that it was made for:
// what fails fails that.
func (l *Lab) In(t testing.TB) *Lab { return &Lab{t, l.shared} }

// down takes the lab down, and keeps evidence if the test has failed.
func (l *Lab) down() {
	select {
	case <-l.lab.Done():
		l.t.Errorf("lab %s has ended before its test: %v", l.topo.Name, explain(l.lab.Err()))
	default:
	}
	if l.t.Failed() && l.memory != nil {
		l.t.Log(l.story())
	}
	if err := l.lab.Close(); err != nil {
		l.t.Errorf("lab %s: %v", l.topo.Name, err)
	}
}

// late keeps evidence of a test that is near its deadline, and tells of it at once: package
// testing ends a test that is over its deadline with a panic, and nothing that it logged
// is seen.
func (l *Lab) late() {
	if context.Cause(l.ctx) == errDeadline {
		fmt.Fprintf(os.Stderr, "%s: %v\n%s\n", l.t.Name(), errDeadline, l.story())
	}
}

// graceTime is the time between the end of all waiting for a lab and the deadline of its
// test, in which the test can fail, say why, and take the lab down.
const graceTime = 5 * time.Second

// nextID is a name for a command that no other has.
func (l *Lab) nextID() string { return fmt.Sprintf("labtest-%d", l.commands.Add(1)) }

// untilDeadline is a context for all that concerns a lab.
func untilDeadline(t testing.TB) (context.Context, context.CancelFunc) {
	if d, ok := t.(interface{ Deadline() (time.Time, bool) }); ok {
		if at, ok := d.Deadline(); ok {
			left := time.Until(at)
			return context.WithTimeoutCause(context.Background(), left-min(graceTime, left/4), errDeadline)
		}
	}
	return context.WithCancel(context.Background())
}

var errDeadline = errors.New("the test is near its deadline (go test -timeout)")

// waiting is a context for one thing that is to be waited for.
func (l *Lab) waiting() (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(l.ctx, l.patience, fmt.Errorf("waited for %v", l.patience))
}

// must ends the test if err is not nil.
func (l *Lab) must(err error) {
	if err != nil {
		l.t.Helper()
		l.t.Fatalf("lab %s: %v", l.topo.Name, l.because(err))
	}
}

// because is err, or why the lab's context has ended if that is all that err says.
func (l *Lab) because(err error) error {
	if l.ctx.Err() != nil && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)) {
		return fmt.Errorf("%w: %w", err, context.Cause(l.ctx))
	}
	return explain(err)
}

func explain(err error) error {
	if errors.Is(err, control.ErrClosed) {
		return errors.New("the lab's supervisor was killed, and the lab with it")
	}
	return err
}

// refuse skips or fails a test whose lab could not be made.
func refuse(t testing.TB, set *settings, err error) {
	t.Helper()
	if control.CodeOf(err) != control.Unable {
		t.Fatal(explain(err))
	}
	text := "this machine cannot have labs: " + err.Error()
	for _, f := range doctor.Examine(context.Background()).Obstacles() {
		text += "\n" + f.String()
	}
	if set.required {
		t.Fatalf("%s\n(the test is not skipped: %s is set, or the lab is Required)", text, need.Variable)
	}
	t.Skip(text)
}

// nameOf is a lab name like that of a file.
func nameOf(file string) string {
	base, _, _ := strings.Cut(filepath.Base(file), ".")
	base = strings.Trim(strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
			return c
		case c >= 'A' && c <= 'Z':
			return c - 'A' + 'a'
		}
		return '-'
	}, base), "-")
	return strings.Trim(fmt.Sprintf("%.*s", topology.MaxLabName, cmp.Or(base, "lab")), "-")
}

// nameFor is nameOf with an end that no other lab of this machine has.
func nameFor(file string) string {
	return fmt.Sprintf("%.*s-%08x", topology.MaxLabName-9, nameOf(file), rand.Uint32())
}

var sweeping sync.Once

// sweep removes what labs left whose processes were killed, once.
func sweep(t testing.TB) {
	sweeping.Do(func() {
		if err := lab.Sweep(); err != nil {
			t.Logf("what other labs left: %v", err)
		}
	})
}
