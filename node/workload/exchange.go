package workload

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
)

// An exchange is the client of the operations that are made of requests and answers. It
// has QPs lines, each a connection that carries requests, and begins to ask when all are
// connected.
//
// A line whose connection fails ends the exchange or, with Reconnect, connects again, on
// the terms of a stream's lanes (lane.go), and then asks once more for what had not been
// answered.
type exchange struct {
	base
	from netip.Addr
	to   netip.AddrPort
	done func(Result)
	// meet makes the asker of a line's next connection.
	meet func(l *line) asker

	// Guarded by base.mu.
	account
	lines     []line
	attempted int      // lines whose first connection was asked for
	connected int      // lines that have been connected
	started   bool     // all have
	next      uint64   // the first request that was never made, by number
	again     []uint64 // requests to be made once more, which come first
	broken    bool     // the connections that there were are dropped
	leaving   bool     // they are ended in good order
}

// An asker is the client's session on one connection.
type asker interface {
	session
	of() *line
	// terms are what its QP is to have room for, what the server is told with the request
	// for the connection, and how many READs the server may have in progress.
	terms() (r room, private []byte, inbound uint32)
	// asks reports whether it can ask for something more.
	asks() bool
	// ask makes a request, by number. It tells the line when that is answered.
	ask(number uint64) provider.Status
	// unanswered are the requests that it has made and that have no answer, in order.
	unanswered() []uint64
}

// A line is where an exchange has one connection after the other.
type line struct {
	exchange *exchange
	index    int
	conn     *conn         // nil: there is none
	asker    asker         // of conn
	met      bool          // it has been connected
	lost     time.Duration // since when it is not connected
	why      string        // it is not
	timer    clock.Timer   // for the next connection, or the end of an attempt to make one; nil before there is need
}

// start starts the client. entries is how many of the CQ's a line may take.
func (w *exchange) start(needs func(provider.AdapterInfo) []need, entries int, prepare func() error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.owner = w
	err := w.open(needs, w.spec.lanes(), entries, func() { w.Abort(disabled) })
	if err == nil {
		err = prepare()
	}
	if err != nil {
		w.end(func() {})
		return err
	}
	now := w.clock.Now()
	w.account = newAccount(&w.spec, now)
	w.lines = make([]line, w.spec.lanes())
	for i := range w.lines {
		w.lines[i] = line{exchange: w, index: i, lost: now}
	}
	w.watch()
	w.soon()
	return nil
}

// advance connects, asks, and ends the exchange when all is done.
func (w *exchange) advance() {
	if w.over {
		return
	}
	if !w.broken && !w.leaving {
		w.connectLines()
		w.askAll()
		if (w.started || w.stopped) && !w.broken && w.underWay == 0 && w.wanted(w.clock.Now()) == 0 {
			w.leave()
		}
	}
	if w.conns.Len() == 0 && (w.broken || w.leaving) {
		result := w.conclude(w.clock.Now())
		w.end(func() { w.done(result) })
	}
}

// connectLines asks for the first connections, connectsAtOnce at a time.
func (w *exchange) connectLines() {
	for ; w.attempted < len(w.lines) && w.attempted < w.connected+connectsAtOnce && !w.broken; w.attempted++ {
		w.lines[w.attempted].connect()
	}
}

// askAll makes as many requests as may be made.
func (w *exchange) askAll() {
	if !w.started {
		return
	}
	for i := range w.lines {
		for l := &w.lines[i]; l.up() && l.asker.asks(); {
			now := w.clock.Now()
			var number uint64
			switch {
			case len(w.again) > 0:
				number, w.again = w.again[0], w.again[1:]
				w.result.Retried++
			case w.wanted(now) > 0:
				number = w.next
				w.next++
				w.begun(now)
			default:
				return
			}
			if status := l.asker.ask(number); status != provider.StatusSuccess {
				l.conn.fail(fmt.Sprintf("request %d: %v", number, status))
			}
		}
	}
}

// leave ends the connections in good order, when all is done.
func (w *exchange) leave() {
	w.leaving = true
	for i := range w.lines {
		l := &w.lines[i]
		l.stopTimer()
		if l.up() {
			l.conn.disconnect()
		} else if l.conn != nil {
			l.conn.drop()
		}
	}
}

// fail ends the exchange: nothing that is under way will be answered.
func (w *exchange) fail(why string) {
	if w.broken || w.leaving {
		return
	}
	w.broken = true
	now := w.clock.Now()
	for range max(1, w.underWay) {
		w.failed(now, why)
	}
	w.giveUp(now)
	w.dropAll()
}

// lost has the line of a connection make another one, if it may.
func (w *exchange) lost(c *conn, why string) {
	if !w.spec.Reconnect {
		w.fail(why)
		return
	}
	a := c.session.(asker)
	w.again = append(w.again, a.unanswered()...)
	a.of().why = why
}

// gone: the line has room for its next connection.
func (w *exchange) gone(c *conn) {
	l := c.session.(asker).of()
	l.conn = nil
	if w.broken || w.leaving {
		return
	}
	if c.established {
		l.lost = w.clock.Now()
		l.connect()
	} else {
		l.after(connectPause, l.connect)
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

// Progress implements client.
func (w *exchange) Progress() Progress {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.progress()
}

func (l *line) up() bool { return l.conn != nil && l.conn.stage == up }

// connect asks for a connection, unless that has been tried for too long.
func (l *line) connect() {
	w := l.exchange
	if w.broken || w.leaving || l.conn != nil {
		return
	}
	now, until := w.clock.Now(), l.lost
	if w.started && w.spec.Count == 0 && !w.stopped {
		until = max(until, w.began+w.spec.Duration)
	}
	if now-until >= patience {
		w.fail(fmt.Sprintf("no connection could be made for %v: %s", (now - l.lost).Round(time.Second), l.why))
		return
	}
	l.asker = w.meet(l)
	room, private, inbound := l.asker.terms()
	c, err := w.newConn(l.asker, room)
	l.conn = c
	if err == nil {
		err = c.connect(w.from, w.to, inbound, 0, private)
	}
	switch {
	case err != nil:
		w.lost(c, err.Error())
	case w.spec.Reconnect:
		l.after(connectTime, func() {
			if c.stage == making {
				c.fail("connect: no answer")
			}
		})
	}
}

// connected is when the line has a connection.
func (l *line) connected() {
	w := l.exchange
	l.stopTimer()
	w.result.Connections++
	if l.met {
		w.result.Reconnects++
		return
	}
	l.met = true
	if w.connected++; w.connected == len(w.lines) {
		w.started = true
		w.account.begin(w.clock.Now())
	}
}

// answered is when a request that was made at an instant has been answered as it should
// be, or has not: then why says how.
func (l *line) answered(made time.Duration, bytes uint64, why string) {
	now := l.exchange.clock.Now()
	if why != "" {
		l.exchange.wrong(now, why)
	} else {
		l.exchange.completed(now, made, bytes)
	}
}

// after has f run later, in place of what was to run so before.
func (l *line) after(d time.Duration, f func()) {
	l.stopTimer()
	w := l.exchange
	l.timer = w.clock.AfterFunc(d, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.over {
			f()
			w.advance()
		}
	})
}

func (l *line) stopTimer() {
	if l.timer != nil {
		l.timer.Stop()
	}
}
