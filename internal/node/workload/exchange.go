package workload

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
)

// An exchange is the client of the operations whose connections stay: sends, writes and
// reads (stream.go), and what is made of requests and answers (requests.go). It has
// Spec.QPs channels, each with a connection, and begins its work when all are connected.
//
// A channel whose connection fails ends the exchange or, with Spec.Reconnect, connects
// again, and does once more what may not have arrived.
type exchange struct {
	initiator
	work work

	// Guarded by endpoint.mu.
	channels  []channel
	attempted int32 // channels whose first connection was asked for
	connected int32 // channels that have been connected
	broken    bool  // the exchange has failed, and its connections are dropped
	leaving   bool  // all is done, and the connections are ended in good order
}

// work moves the data of an exchange on its channels. Its methods are called with the endpoint's
// lock held.
type work interface {
	// session returns the session of a channel's next connection.
	session(ch *channel) clientSession
	// start begins the work: all channels are connected.
	start(now time.Duration)
	// proceed begins what may be begun now.
	proceed()
	// complete reports whether nothing is left to do.
	complete(now time.Duration) bool
	// retry has what was under way on a connection, which has failed, be done once more.
	retry(s clientSession)
	// abandon counts what is under way as failed: the exchange has failed.
	abandon(now time.Duration, why string)
}

// A clientSession is the session of a channel's connection.
type clientSession interface {
	session
	of() *channel
	// request returns what is needed to ask for the connection.
	request() (qpShape, terms)
}

// A channel has one connection of an exchange after the other.
type channel struct {
	exchange *exchange
	index    int
	conn     *connection   // nil: there is none
	met      bool          // it has been connected
	lost     time.Duration // since when it is not connected
	why      string        // it is not
	timer    clock.Timer   // for the next connection, or the end of an attempt to make one; nil before there is need
}

// connectsAtOnce bounds the connections that a client asks for at a time: a server's node
// need not have room for the requests of thousands.
const connectsAtOnce = 64

// With Spec.Reconnect:
const (
	// connectPause is the time from an attempt to connect that has failed to the next.
	connectPause = 100 * time.Millisecond
	// connectTime bounds how long an attempt may take. The adapter would repeat its request for
	// longer, but at ever longer intervals, so that a network that works again would be
	// noticed late.
	connectTime = 2 * time.Second
	// patience bounds how long a connection may be missing when nothing else is wanted but that
	// messages which were in flight be completed, or while the first ones are made.
	patience = 30 * time.Second
)

// newExchange returns an exchange that is not open yet.
func newExchange(m *provider.Miniport, c clock.Clock, spec *Spec, from netip.Addr, to netip.AddrPort, done func(Result)) exchange {
	return exchange{initiator: newInitiator(m, c, spec, from, to, done)}
}

// open opens the endpoint and has prepare make what all channels have in common. When that
// fails, everything is being closed. w.mu is held.
func (w *exchange) open(work work, needs func(provider.AdapterInfo) []need, entries uint64, prepare func() error) error {
	w.owner, w.work = w, work
	now := w.clock.Now()
	w.account = newAccount(w.spec, now)
	w.channels = make([]channel, w.spec.channels())
	for i := range w.channels {
		w.channels[i] = channel{exchange: w, index: i, lost: now}
	}
	err := w.endpoint.open(needs, entries, func() { w.Abort(disabled) })
	if err == nil {
		err = prepare()
	}
	if err != nil {
		w.cancel()
	}
	return err
}

// cancel closes everything of an exchange that could not be started, which has no result.
func (w *exchange) cancel() {
	w.done = func(Result) {}
	w.broken = true
	w.dropAll()
	w.advance()
}

// advance connects, works, and ends the exchange when all is done.
func (w *exchange) advance() {
	if w.over {
		return
	}
	if !w.broken && !w.leaving {
		if err := w.connectChannels(); err != nil {
			w.fail(err.Error())
		}
		w.work.proceed()
		if !w.broken && w.work.complete(w.clock.Now()) {
			w.leave()
		}
	}
	if w.conns.count == 0 && (w.broken || w.leaving) {
		result := w.finish(w.clock.Now())
		w.end(func() { w.done(result) })
	}
}

// connectChannels asks for the first connections, connectsAtOnce at a time.
func (w *exchange) connectChannels() error {
	for int(w.attempted) < len(w.channels) && w.attempted < w.connected+connectsAtOnce && !w.broken {
		w.attempted++
		if err := w.channels[w.attempted-1].connect(); err != nil {
			return err
		}
	}
	return nil
}

// leave ends the connections in good order, when all is done.
func (w *exchange) leave() {
	w.leaving = true
	w.setEnding()
	for i := range w.channels {
		ch := &w.channels[i]
		ch.stopTimer()
		if ch.up() {
			ch.conn.disconnect()
		} else if ch.conn != nil {
			ch.conn.drop()
		}
	}
}

// fail ends the exchange: nothing that is under way will come to its end.
func (w *exchange) fail(why string) {
	if w.broken || w.leaving {
		return
	}
	w.broken = true
	w.setEnding()
	w.work.abandon(w.clock.Now(), why)
	w.dropAll()
}

// lost implements owner: the channel connects again, if it may.
func (w *exchange) lost(c *connection, why string) {
	if !w.spec.Reconnect {
		w.fail(why)
		return
	}
	s := c.session.(clientSession)
	ch := s.of()
	if ch.why = why; c.established {
		ch.lost = w.clock.Now()
	}
	w.work.retry(s)
}

// gone implements owner: the channel has room for its next connection.
func (w *exchange) gone(c *connection) {
	ch := c.session.(clientSession).of()
	ch.conn = nil
	switch {
	case w.broken || w.leaving:
	case c.established:
		ch.reconnect()
	default:
		ch.after(connectPause, ch.reconnect)
	}
}

// Stop implements client.
func (w *exchange) Stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	w.advance()
}

// Abort implements client.
func (w *exchange) Abort(reason string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail(reason)
	w.advance()
}

// up reports whether the channel has a connection that is established.
func (ch *channel) up() bool { return ch.conn != nil && ch.conn.stage == up }

// connect asks for a connection. It returns the error if that is not possible, unless the
// channel tries again then.
func (ch *channel) connect() error {
	w := ch.exchange
	s := w.work.session(ch)
	shape, terms := s.request()
	c, err := w.newConnection(s, shape)
	ch.conn = c
	if err == nil {
		err = c.connect(w.from, w.to, terms)
	}
	switch {
	case !w.spec.Reconnect:
		return err
	case err != nil:
		w.lost(c, err.Error())
	default:
		ch.after(connectTime, func() {
			if c.stage == connecting {
				c.fail("connect: no answer")
			}
		})
	}
	return nil
}

// reconnect asks for another connection, unless that has been tried for too long.
func (ch *channel) reconnect() {
	w := ch.exchange
	if w.broken || w.leaving || ch.conn != nil {
		return
	}
	now := w.clock.Now()
	if now-max(ch.lost, w.deadline()) >= patience {
		w.fail(fmt.Sprintf("no connection could be made for %v: %s", (now - ch.lost).Round(time.Second), ch.why))
		return
	}
	_ = ch.connect() // with Reconnect there is no error
}

// noteConnected notes that the channel's connection is established.
func (ch *channel) noteConnected() {
	w := ch.exchange
	ch.stopTimer()
	w.result.Connections++
	if ch.met {
		w.result.Reconnects++
		return
	}
	ch.met = true
	if w.connected++; int(w.connected) == len(w.channels) {
		w.work.start(w.clock.Now())
	}
}

// after has f run later, in place of what was to run so before.
func (ch *channel) after(d time.Duration, f func()) {
	ch.stopTimer()
	w := ch.exchange
	ch.timer = w.clock.AfterFunc(d, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.over {
			f()
			w.advance()
		}
	})
}

func (ch *channel) stopTimer() {
	if ch.timer != nil {
		ch.timer.Stop()
	}
}
