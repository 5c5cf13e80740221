package workload

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/ndklab/ndklab/provider"
)

// An acceptor is a server: it accepts whoever asks for a connection, as long as it has room,
// and closes what its peer has ended.
type acceptor struct {
	endpoint
	most     int // connections that it has room for
	listener *provider.Listener
	// newSession makes the session of a connection that is asked for with private data. The
	// error may be errStranger or errLater.
	newSession func(private []byte) (serverSession, error)

	// Guarded by endpoint.mu.
	result   ServerResult
	waiting  []*provider.Connector // requests that are decided on again when a connection is closed
	stopping bool
	closed   bool                 // everything is
	stopped  []func(ServerResult) // are called then
}

// A serverSession is the session of a connection that was accepted.
type serverSession interface {
	session
	// shape returns what its QP is to have room for.
	shape() qpShape
	// acceptance returns what the peer is told.
	acceptance() terms
}

// Reasons why a request for a connection is not accepted.
var (
	// errStranger refuses a peer that is no client of the workload, which is no failure.
	errStranger = errors.New("the peer is no client")
	// errLater keeps a request until another connection is closed.
	errLater = errors.New("a connection is still being closed")
)

// listen starts the server. needs are the limits that each connection and the whole server
// need, and entries is the depth of the CQ.
func (a *acceptor) listen(at netip.AddrPort, needs func(provider.AdapterInfo) []need, entries uint64, prepare func() error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.owner == nil {
		a.owner = a
	}
	err := a.open(needs, entries, func() { a.abort(disabled) })
	if err == nil && prepare != nil {
		err = prepare()
	}
	if err == nil {
		err = a.startListener(at)
	}
	if err != nil {
		a.stopping = true
		a.end(func() {}, a.listeners()...)
		return err
	}
	a.await()
	return nil
}

func (a *acceptor) startListener(at netip.AddrPort) error {
	var status provider.Status
	if a.listener, status = a.adapter.CreateListener(a.requested, nil, nil, nil); status != provider.StatusSuccess {
		return fmt.Errorf("create listener: %w", status)
	}
	if status := a.listener.Listen(at, nil, nil); status != provider.StatusSuccess {
		return status
	}
	return nil
}

func (a *acceptor) listeners() []closer {
	if a.listener == nil {
		return nil
	}
	return []closer{a.listener}
}

// requested takes a request for a connection.
func (a *acceptor) requested(_ any, connector *provider.Connector) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.decide(connector)
}

// decide accepts a request, refuses it, or keeps it until a connection is closed: a peer may
// ask for its next connection before all of the last one is closed here.
func (a *acceptor) decide(connector *provider.Connector) {
	if a.stopping {
		connector.Close(nil, nil)
		return
	}
	err := errLater
	if a.closing == 0 || a.conns.count < a.most && a.device.Usage().Qps < a.maxQPs {
		err = a.accept(connector)
	}
	switch {
	case err == nil:
		return
	case errors.Is(err, errLater):
		a.waiting = append(a.waiting, connector)
		return
	case errors.Is(err, errStranger), errors.Is(err, provider.StatusConnectionAborted): // by the peer, who knows why
	default:
		a.trouble(err.Error())
	}
	connector.Reject(nil)
	connector.Close(nil, nil)
}

func (a *acceptor) accept(connector *provider.Connector) error {
	if a.conns.count >= a.most {
		return fmt.Errorf("it has %d connections already", a.most)
	}
	private, err := privateData(connector)
	if err != nil {
		return err
	}
	s, err := a.newSession(private)
	if err != nil {
		return err
	}
	c, err := a.newConnection(s, s.shape())
	if err != nil {
		return err
	}
	return c.accept(connector, s.acceptance())
}

// lost implements owner: the peer has ended a connection, or knows why it failed.
func (a *acceptor) lost(*connection, string) {}

// gone implements owner: there may be room for a request that waits.
func (a *acceptor) gone(*connection) {
	waiting := a.waiting
	a.waiting = nil
	for _, connector := range waiting {
		a.decide(connector) // which may have it wait again
	}
}

// advance implements owner: it closes the server when that is to end and its connections
// are closed.
func (a *acceptor) advance() {
	if !a.stopping || a.over || a.conns.count > 0 {
		return
	}
	a.end(func() {
		a.mu.Lock()
		a.closed = true
		stopped, result := a.stopped, a.result
		a.mu.Unlock()
		for _, done := range stopped {
			done(result)
		}
	}, a.listeners()...)
}

// note keeps the first failure. a.mu is held.
func (a *acceptor) note(text string) {
	if a.result.Error == "" {
		a.result.Error = text
	}
}

// trouble notes a failure of a connection, unless the client makes another one then. a.mu is
// held.
func (a *acceptor) trouble(text string) {
	if !a.spec.Reconnect {
		a.note(text)
	}
}

// abort ends the server. The reason is its error, unless there is one.
func (a *acceptor) abort(reason string) {
	a.mu.Lock()
	a.note(reason)
	a.mu.Unlock()
	a.Stop(func(ServerResult) {})
}

// Stop ends the server, whatever it is in the middle of, and calls done with what it has
// found when everything is closed. It may be called again.
func (a *acceptor) Stop(done func(ServerResult)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		result := a.result
		a.clock.Go(func() { done(result) })
		return
	}
	a.stopped = append(a.stopped, done)
	if a.stopping {
		return
	}
	a.stopping = true
	if !a.over {
		a.drain()
	}
	for _, connector := range a.waiting {
		connector.Close(nil, nil)
	}
	a.waiting = nil
	a.dropAll()
	a.advance()
}
