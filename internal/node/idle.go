package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/udp"
)

// This file is about nodes in which nothing runs. Such a node has its network, and the sockets at which its adapter will
// receive, which the supervisor has. Its process is started by the first request or signal, or by a packet at one of the
// sockets, which get to it with all that waits there: a peer sees that it is answered some milliseconds later, and nothing
// else. A peer that wants something of the node's kernel, such as an echo, sees that it asks for the peer's MAC address.

// An idle has what a node that is up has instead of a process.
type idle struct {
	params  upParams   // with which the adapter is opened
	sockets []*os.File // at which it receives; in the order of params.Addresses
	number  int32      // that arrivals knows them by
}

// beginTime bounds the time in which an agent that is started late opens its adapter.
const beginTime = 30 * time.Second

// beIdle has a node that has been configured wait without a process. It reports false if there is one already.
func (a *Agent) beIdle(params *upParams) (bool, error) {
	a.starting.Lock()
	defer a.starting.Unlock()
	if a.process() != nil {
		return false, nil
	}
	i := &idle{params: *params}
	if len(params.Addresses) > 0 {
		var err error
		if away := a.inNetwork(func() { i.sockets, err = params.bind() }); away != nil || err != nil {
			return false, errors.Join(away, err)
		}
		if i.number, err = a.cfg.Machine.arrivals.watch(i.sockets, a.wake); err != nil {
			closeAll(i.sockets)
			return false, err
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.killed { // and endIdle waits for a.starting
		return true, control.ErrClosed
	}
	a.idle = i
	if len(i.sockets) > 0 {
		a.network.Close()
		a.network = nil
	}
	return true, nil
}

// wake starts the process of a node at which a packet has arrived. Where there is no room for it now it tries again: nobody tells of
// further packets.
func (a *Agent) wake() {
	for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
		_, err := a.begin()
		if err == nil || errors.Is(err, control.ErrClosed) {
			return
		}
		fmt.Fprintf(a.stderr, "node %s: %v\n", a.cfg.Name, err)
		a.mu.Lock()
		waits := a.idle != nil && !a.killed
		a.mu.Unlock()
		if !waits {
			return
		}
		time.Sleep(pause)
	}
}

// The pause before wake tries again is firstRetry, twice as long each time, and lastRetry at most.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 10 * time.Second
)

// begin starts the process, unless the node has one, and returns the channel to it. If the node is up, the adapter is open
// then. An idle node whose process cannot be started stays as it is. One whose process cannot open the adapter ends.
func (a *Agent) begin() (*control.Conn, error) {
	if conn := a.channel(); conn != nil {
		return conn, nil
	}
	a.starting.Lock()
	defer a.starting.Unlock()
	a.mu.Lock()
	conn, waiting, over := a.control, a.idle, a.killed || a.proc != nil
	a.mu.Unlock()
	if conn != nil || over { // of a process whose adapter could not be opened there is no channel
		if conn == nil {
			return nil, control.ErrClosed
		}
		return conn, nil
	}
	conn, err := a.run()
	if err == nil && waiting != nil {
		err = a.handOver(conn, waiting)
	}
	a.mu.Lock()
	proc, network := a.proc, a.network
	if proc != nil { // which keeps the network from now on
		a.idle, a.network = nil, nil
	}
	if err == nil {
		a.control = conn
	}
	a.killed = a.killed || err != nil && (proc != nil || waiting == nil)
	a.mu.Unlock()
	switch {
	case proc == nil && waiting != nil: // it may be started when there is more room
		return nil, err
	case proc == nil:
		a.endWithoutProcess()
		return nil, err
	case err != nil:
		_ = proc.signal(unix.SIGKILL, false) // it fails if the process has ended already
	}
	network.Close() // of nil does nothing
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// handOver has a process that was started late open the adapter, on the sockets that there are. It has its neighbours before.
func (a *Agent) handOver(conn *control.Conn, from *idle) error {
	defer closeAll(from.sockets)
	if err := a.enterNeighbours(); err != nil {
		return err
	}
	if len(from.sockets) == 0 {
		return nil
	}
	if err := a.cfg.Machine.arrivals.forget(from.number, from.sockets); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), beginTime)
	defer cancel()
	granted, err := methodUp.Call(ctx, conn, from.params, from.sockets...)
	if err != nil {
		return fmt.Errorf("adapter of a node that was idle: %w", err)
	}
	a.buffer.Store(granted)
	return nil
}

// keep has the adapter of an idle node be opened without the addresses that the node has lost. a.starting is held.
func (a *Agent) keep(addresses []localAddress) error {
	a.mu.Lock()
	i := a.idle
	a.mu.Unlock()
	if i == nil {
		return nil
	}
	kept := idle{params: i.params}
	kept.params.Addresses = nil
	var lost []*os.File
	for k, f := range i.sockets {
		if at := i.params.Addresses[k]; slices.Contains(addresses, at) {
			kept.params.Addresses, kept.sockets = append(kept.params.Addresses, at), append(kept.sockets, f)
		} else {
			lost = append(lost, f)
		}
	}
	if len(lost) == 0 {
		return nil
	}
	var network *os.File // which the sockets have kept so far
	var err error
	if len(kept.sockets) == 0 {
		if network, err = a.Network(); err != nil {
			return err
		}
	}
	err = a.cfg.Machine.arrivals.forget(i.number, i.sockets)
	if err == nil && len(kept.sockets) > 0 {
		kept.number, err = a.cfg.Machine.arrivals.watch(kept.sockets, a.wake)
	}
	if err != nil {
		network.Close() // of nil does nothing
		return err
	}
	a.mu.Lock()
	a.idle, a.network = &kept, network
	a.mu.Unlock()
	closeAll(lost)
	return nil
}

// channel returns the channel to the process; nil before it is ready.
func (a *Agent) channel() *control.Conn {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.control
}

// endIdle ends a node that was killed, unless it gets a process meanwhile.
func (a *Agent) endIdle() {
	a.starting.Lock()
	defer a.starting.Unlock()
	a.endWithoutProcess()
}

// endWithoutProcess ends a node unless it has a process, or has ended. a.starting is held.
func (a *Agent) endWithoutProcess() {
	a.mu.Lock()
	was := a.idle
	over := a.proc != nil || a.exit != (Exit{})
	if !over {
		a.idle, a.exit = nil, Exit{Signal: unix.SIGKILL}
	}
	a.mu.Unlock()
	if over {
		return
	}
	a.giveBack()
	if was != nil && len(was.sockets) > 0 {
		if err := a.cfg.Machine.arrivals.forget(was.number, was.sockets); err != nil {
			fmt.Fprintf(a.stderr, "node %s: %v\n", a.cfg.Name, err)
		}
		closeAll(was.sockets)
	}
	close(a.done)
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// idleNumber is the number of the observation of an idle node. Agents count theirs from 1.
const idleNumber = 1 << 63

// answerIdle returns what the process of an idle node would say of itself to a monitor; nil if the node is not idle.
func (a *Agent) answerIdle() *Observation {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.idle == nil:
		return nil
	case len(a.idle.sockets) == 0:
		return &Observation{Number: idleNumber}
	}
	return a.cfg.Machine.idleAdapter()
}

// idleAdapter returns the observation of nodes whose adapter has done nothing. It is one for all, and not to be changed.
func (m *Machine) idleAdapter() *Observation {
	m.answering.Do(func() {
		counted := Counters{NDK: provider.Counters{}.Map(), Transport: provider.NoTransportCounters(new(udp.Carrier))}
		m.answer = &Observation{Number: idleNumber, Counters: counted, InUse: new(provider.Usage)}
	})
	return m.answer
}
