package programs

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ndklab/ndklab/fabric/labtest"
	"github.com/ndklab/ndklab/internal/need"
)

// A pair is a program's two ends and what must hold of them. In their commands, which a
// shell runs, SERVER stands for the server's address and SERVER6 for that of IPv6, and
// CLIENT and CLIENT6 for the client's; $WORK is a folder for both. The client starts when the server is ready.
type pair struct {
	name           string
	server, client string
	ready          string // what the server prints then; else it is ready when it listens, by TCP or RDMA
	endless        bool   // the server does not end by itself, and is interrupted after the client's end
	needs          string // programs that must be installed, where these are not the first words of the commands
	holds          []claim
}

// installed says which of the pair's programs are not on this machine.
func (p *pair) installed() error {
	if p.needs != "" {
		return need.Programs(strings.Fields(p.needs)...)
	}
	return need.Programs(programs(p.server, p.client)...)
}

// programs are those that commands run: their first words, but for variables.
func programs(commands ...string) (names []string) {
	for _, command := range commands {
		words := strings.Fields(command)
		names = append(names, words[slices.IndexFunc(words, func(word string) bool { return !strings.Contains(word, "=") })])
	}
	return names
}

// A claim is something that must hold of a pair that has ended, each end with status 0.
type claim func(*outcome) error

// An outcome holds what the ends printed, errors and all.
type outcome struct{ server, client string }

// clientPrints claims that a line of the client's matches an expression.
func clientPrints(expression string) claim {
	return func(o *outcome) error { return prints("client", o.client, expression) }
}

// serverPrints claims that a line of the server's matches an expression.
func serverPrints(expression string) claim {
	return func(o *outcome) error { return prints("server", o.server, expression) }
}

func prints(end, text, expression string) error {
	if !regexp.MustCompile("(?m)" + expression).MatchString(text) {
		return fmt.Errorf("the %s prints no %q", end, expression)
	}
	return nil
}

// shortForm is of how many pairs one runs in the short form (go test -short).
const shortForm = 3

// runAll runs pairs one after another between the nodes client and server of a lab.
func runAll(t *testing.T, l *labtest.Lab, pairs []pair) {
	for i, p := range pairs {
		if testing.Short() && i%shortForm > 0 {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			need.Check(t, p.installed())
			p.run(t, l.In(t))
		})
	}
}

// pairTime bounds a pair's run.
const pairTime = 60 * time.Second

// flaw matches the output of a program that has ended by a flaw of its own, of busy machines: perftest has not found out how fast
// the processor's clock goes, qperf's client has connected before its server, which had told it to, listened, one of
// rping's threads has closed the event channel at the end as the other was about to read from it, and fio, which asks for no
// retries, sends half a second after it has connected whether or not its peer has posted receives. Such a pair is run again,
// until it has been run so many times.
var flaw = regexp.MustCompile(`Can't produce a report|unexpected event from RDMA CM: Event rejected|rdma_get_cm_event: Bad file descriptor|fio: cq completion status 13`)

const runs = 5

func (p *pair) run(t *testing.T, l *labtest.Lab) {
	for left := runs; ; left-- {
		o, err := p.try(t, l)
		if err != nil && left > 1 && flaw.MatchString(o.server+o.client) {
			continue
		}
		if err != nil {
			t.Errorf("%v\nserver: %s\n%s\nclient: %s\n%s", err, p.server, o.server, p.client, o.client)
		}
		return
	}
}

// try runs the pair once.
func (p *pair) try(t *testing.T, l *labtest.Lab) (o *outcome, err error) {
	ctx, cancel := context.WithTimeoutCause(l.Context(), pairTime, errors.New("it takes too long"))
	defer cancel()
	t.Setenv("WORK", t.TempDir())
	server := start(ctx, t, l, "server", p.server)
	server.awaitReady(p.ready)
	client := start(ctx, t, l, "client", p.client)
	err = client.wait()
	if p.endless || err != nil { // it may wait for a client that has failed
		server.stop()
	} else {
		err = server.wait()
	}
	o = &outcome{server.output.String(), client.output.String()}
	for _, holds := range p.holds {
		err = errors.Join(err, holds(o))
	}
	return o, err
}

// endTime bounds the time of an end that is left alone, to find out and to end.
const endTime = 20 * time.Second

// kill ends one of the two, when it is at what it is for, by SIGKILL. The other one must end, too.
func (p *pair) kill(t *testing.T, l *labtest.Lab, dies string) {
	ctx, cancel := context.WithTimeout(l.Context(), pairTime)
	defer cancel()
	ends := map[string]*end{"server": start(ctx, t, l, "server", p.server)}
	ends["server"].awaitReady(p.ready)
	ends["client"] = start(ctx, t, l, "client", p.client)
	ends["client"].awaitTraffic()
	ends[dies].signal(syscall.SIGKILL)
	_ = ends[dies].wait() // killed
	delete(ends, dies)
	for name, left := range ends {
		select {
		case <-left.read:
			_ = left.wait() // whatever it makes of it
		case <-time.After(endTime):
			t.Errorf("the %s goes on %v after the other end was killed:\n%s", name, endTime, left.output.String())
			left.command.Stop()
		}
	}
}

// TestFlaw: a pair whose program has ended by a flaw of its own is run again.
func TestFlaw(t *testing.T) {
	fit(t)
	ran := filepath.Join(t.TempDir(), "ran")
	client := fmt.Sprintf(`test -e %s || { >%[1]s; echo "Can't produce a report"; exit 1; }`, ran)
	runAll(t, plainLab(t), []pair{{name: "twice", server: "true", client: client, needs: "test"}})
}
