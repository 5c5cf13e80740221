package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/node"
	"github.com/ndklab/ndklab/internal/node/cgroup"
	"github.com/ndklab/ndklab/provider/udp"
	"github.com/ndklab/ndklab/topology"
	"golang.org/x/sys/unix"
)

// A life is a node from a start to its end on this machine: an agent, which is never the same again. Fields that no lock
// guards are set before anybody else sees it.
type life struct {
	core.Of
	spec    *topology.Node
	group   *cgroup.Group // nil without limits
	unwatch func()        // ends what watches the group's memory
	agent   *node.Agent   // nil at another host
	client  *node.Client  // of the agent
	hostPID atomic.Int64  // the agent's on its host; 0: not known
	usageOf func() usage  // asks the part that has the node; nil: it is here

	down   chan struct{} // closed when the core knows that the agent has ended
	reason string        // why the node is down; valid once down is closed

	rating sync.Mutex            // guards rates
	rates  map[netip.Addr]uint64 // of its lines, as the agent was told last; nil: it need not know

	mu     sync.Mutex     // guards what follows
	signal syscall.Signal // the last that a command has sent; 0 if none has
	told   node.Config    // how the agent was told last to set the network up
	fresh  bool           // an interface was made since
}

// startTime bounds the time in which an agent puts the files of its node in place, or sets it up.
const startTime = 30 * time.Second

// answerTime bounds the time in which an agent answers a request that takes it no time. One
// that is stopped never does. Tests have other times.
var answerTime = time.Second

// done is the result of an action that has failed with err or, if that is nil, has not.
func (l *life) done(err error) core.Done {
	return core.Done{Err: err, Agent: errors.Is(err, control.ErrClosed)}
}

// end says how the agent has ended. The runtime of Go has process 1 exit with
// status 2 where a signal would kill another process.
func (l *life) end() string {
	l.mu.Lock()
	signal := l.signal
	l.mu.Unlock()
	text := "its agent " + l.agent.Exit().String()
	if signal != 0 && l.agent.Exit().Status == 2 {
		text = "its agent was killed by " + unix.SignalName(signal)
	}
	return text + l.limitReached()
}

func (l *life) placeFiles() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	return l.agent.Mount(ctx)
}

// configure has the agent set its interfaces up and open its adapter. It warns, once in a lab, that the kernel grants
// less of a receive buffer than the file asks for.
func (l *life) configure(d *nodeDriver) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	if err := l.agent.Up(ctx); err != nil {
		return err
	}
	l.mu.Lock()
	l.fresh = false
	l.mu.Unlock()
	asked, granted := l.spec.Adapter.ReceiveBuffer, l.agent.ReceiveBuffer()
	if asked == nil || granted == 0 || granted >= *asked {
		return nil
	}
	d.short.Do(func() {
		d.publish(event.Event{Kind: event.Warning, Node: l.Node, Text: fmt.Sprintf("node %s: receive_buffer: the kernel grants room for %d of %d bytes: "+
			"run ndklab as root or, as root, sysctl -w net.core.rmem_max=%d; `ndklab adapter` shows what every node has",
			l.Node, granted, *asked, udp.Charged(int(*asked))/2)})
	})
	return nil
}

// reconfigure has the limits and the network of a node that is up be what another topology says, if that differs.
func (l *life) reconfigure(d *nodeDriver, a core.Reconfigure) error {
	spec := a.Topology.FindNode(a.Node)
	if l.group != nil {
		if err := l.group.Set(limitsOf(spec)); err != nil {
			return fmt.Errorf("node %s: %w", a.Node, err)
		}
	}
	to := d.config(a.Topology, spec, a.Routes, a.Restarts)
	l.mu.Lock()
	same := !l.fresh && reflect.DeepEqual(l.told, to)
	l.mu.Unlock()
	if same {
		return nil
	}
	if err := l.agent.Reconfigure(to); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told, l.fresh = to, false
	return nil
}

// setRoutes has the routes of a node that is up be these.
func (l *life) setRoutes(routes []topology.Route) error {
	if err := l.agent.SetRoutes(routes); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told.Routes = routes
	return nil
}

// execute runs a command of a stage. Its output goes to the log.
func (l *life) execute(command string) core.Done {
	status, last, err := shell(context.Background(), l.client, command, os.Stderr)
	done := l.done(err)
	done.Status, done.Output = status, last
	return done
}

// checkHealth makes one check, and says why it has failed.
func (l *life) checkHealth() core.Done {
	check := l.spec.Setup.Healthcheck
	ctx, cancel := context.WithTimeout(context.Background(), check.Timeout)
	defer cancel()
	status, last, err := shell(ctx, l.client, check.Command, nil)
	var failure string
	switch {
	case errors.Is(err, control.ErrClosed):
		return l.done(err)
	case errors.Is(err, context.DeadlineExceeded):
		failure = fmt.Sprintf("its healthcheck takes longer than %v", check.Timeout)
	case err != nil:
		failure = err.Error()
	case status != 0:
		failure = fmt.Sprintf("its healthcheck ended with status %d", status)
	default:
		return core.Done{}
	}
	if len(last) > 0 {
		failure += ", having written " + strings.Join(last, "; ")
	}
	return core.Done{Failure: failure}
}

// pause stops the processes of the node.
func (l *life) pause() error {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	return unanswered(l.agent.Pause(ctx))
}

// resume has the processes of the node go on.
func (l *life) resume() error {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	return unanswered(l.agent.Resume(ctx))
}

// unanswered says of an agent that did not answer in time that this is so.
func unanswered(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("its agent does not answer within %v: %w", answerTime, err)
	}
	return err
}

// send sends a signal to the agent.
func (l *life) send(sig syscall.Signal) error {
	l.mu.Lock()
	l.signal = sig
	l.mu.Unlock()
	return l.agent.Send(sig)
}

// shell runs a command in a node, and returns its exit status and the last lines that
// it wrote. All of them go to the log, if that is not nil.
func shell(ctx context.Context, agent *node.Client, command string, log io.Writer) (status int, last []string, err error) {
	out, w, err := newTranscript(log, "node "+agent.Name()+": ", lastLines)
	if err != nil {
		return 0, nil, err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		w.Close()
		return 0, nil, err
	}
	status, err = agent.Exec(ctx, node.Command{Args: []string{"/bin/sh", "-c", command}}, null, w, w)
	null.Close()
	w.Close()
	return status, out.ended(), err
}
