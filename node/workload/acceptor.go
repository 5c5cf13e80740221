package workload

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/ndklab/ndklab/provider"
)

// An acceptor is a server whose connections come and go: it accepts whoever asks, as long
// as it has room, and closes what its peer has ended.
type acceptor struct {
	base
	most     int // connections that it has room for
	listener *provider.Listener
	// meet makes the session of a connection that is asked for. The private data is the
	// peer's, privateLen bytes of it.
	meet       func(private []byte) (guest, error)
	privateLen int

	// Guarded by base.mu.
	result   ServerResult
	waiting  []*provider.Connector // requests for which there will be a QP when one is closed
	stopping bool
	closed   bool                 // everything is
	stopped  []func(ServerResult) // who waits for that
}

// A guest is the session of a connection that was accepted.
type guest interface {
	session
	// room is what its QP is to have room for.
	room() room
	// consent is what the peer is told: private data, and how many READs there may be in
	// progress at once in either direction.
	consent() (private []byte, inbound, outbound uint32)
}

// listen starts the server. needs are the limits of each connection's and the whole
// server's; each connection has at most entries of them on the CQ.
func (a *acceptor) listen(at netip.AddrPort, needs func(provider.AdapterInfo) []need, entries int, prepare func() error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.owner == nil {
		a.owner = a
	}
	err := a.open(needs, a.most, entries, func() { a.abort(disabled) })
	if err == nil && prepare != nil {
		err = prepare()
	}
	if err == nil {
		err = a.startListener(at)
	}
	if err != nil {
		a.stopping = true
		a.end(func() {}, a.listeners()...)
	}
	return err
}

func (a *acceptor) startListener(at netip.AddrPort) error {
	var status provider.Status
	if a.listener, status = a.adapter.CreateListener(a.asked, nil, nil, nil); status != provider.StatusSuccess {
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

// asked takes a request for a connection.
func (a *acceptor) asked(_ any, connector *provider.Connector) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.decide(connector)
}

// decide accepts a request, refuses it, or keeps it until a QP is closed: a peer may ask
// for its next connection before all of the last one is closed here.
func (a *acceptor) decide(connector *provider.Connector) {
	if a.stopping {
		connector.Close(nil, nil)
		return
	}
	if a.leaving > 0 && (a.conns.Len() >= a.most || a.device.Usage().Qps >= a.maxQPs) {
		a.waiting = append(a.waiting, connector)
		return
	}
	err := fmt.Errorf("it has %d connections already", a.most)
	if a.conns.Len() < a.most {
		err = a.accept(connector)
	}
	if err == nil {
		return
	}
	if !errors.Is(err, provider.StatusConnectionAborted) { // by the peer, who knows why
		a.note(err.Error())
	}
	connector.Reject(nil)
	connector.Close(nil, nil)
}

func (a *acceptor) accept(connector *provider.Connector) error {
	private, err := privateData(connector, a.privateLen)
	if err != nil {
		return err
	}
	g, err := a.meet(private)
	if err != nil {
		return err
	}
	c, err := a.newConn(g, g.room())
	if err != nil {
		return err
	}
	private, inbound, outbound := g.consent()
	return c.accept(connector, inbound, outbound, private)
}

// lost: the peer has ended a connection, or knows why it failed.
func (a *acceptor) lost(*conn, string) {}

// gone: there may be room for who waits.
func (a *acceptor) gone(*conn) {
	waiting := a.waiting
	a.waiting = nil
	for _, connector := range waiting {
		a.decide(connector) // which may have it wait again
	}
}

// advance closes the server when it is to end and its connections are closed.
func (a *acceptor) advance() {
	if !a.stopping || a.over || a.conns.Len() > 0 {
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

// abort ends the server, with the reason as what went wrong unless something else did.
func (a *acceptor) abort(reason string) {
	a.mu.Lock()
	a.note(reason)
	a.mu.Unlock()
	a.Stop(func(ServerResult) {})
}

// Stop ends the server, whatever it is in the middle of, and calls done with what it
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
	if !a.over {
		a.drain()
	}
	a.stopping = true
	for _, connector := range a.waiting {
		connector.Close(nil, nil)
	}
	a.waiting = nil
	a.dropAll()
	a.advance()
}
