package provider

import (
	"time"

	"github.com/ndklab/ndklab/internal/provider/gsi"
	"github.com/ndklab/ndklab/provider/clock"
)

// Close ends the device. It blocks until every instance is closed, and must not
// be called from a callback.
func (m *Miniport) Close() {
	done := make(chan struct{})
	m.BeginClose(func() { close(done) })
	<-done
}

// BeginClose is Close that calls done instead of blocking: in virtual time
// nobody else would move the time that Close waits for. Of a device that is
// closing it calls done at once.
func (m *Miniport) BeginClose(done func()) {
	if m.closing.Swap(true) {
		done()
		return
	}
	linger := func(any) { m.linger.begin(done) }
	if m.life.close(nil, nil, linger, nil) != StatusPending {
		linger(nil)
	}
}

// A linger is the time that a closing device stays for its peers' answers to its disconnect requests. Without it
// the last requests might be lost with nobody left to repeat them, and the peers would find out only by timeout.
// The manager's lock guards what is not fixed.
type linger struct {
	manager *gsi.Manager
	clock   clock.Clock
	carrier Carrier

	finish   func()      // set while the device lingers
	timer    clock.Timer // ends it after longestLinger
	finished bool
}

// longestLinger bounds how long a closing device waits for its peers.
const longestLinger = 500 * time.Millisecond

// begin waits for the peers, closes the carrier and calls done.
func (l *linger) begin(done func()) {
	l.manager.Lock()
	defer l.manager.Unlock()
	l.finish = func() {
		// Nothing is left to be lost: an error in closing a socket says nothing.
		_ = l.carrier.Close()
		done()
	}
	l.endIfQuiet()
	if l.finished {
		return
	}
	l.timer = l.clock.AfterFunc(longestLinger, func() {
		l.manager.Lock()
		defer l.manager.Unlock()
		l.end()
	})
}

// endIfQuiet ends the lingering when no peer has an answer to give. The manager's
// lock is held.
func (l *linger) endIfQuiet() {
	if l.finish != nil && l.manager.CM.Disconnecting() == 0 {
		l.end()
	}
}

// end ends the lingering. The manager's lock is held.
func (l *linger) end() {
	if l.finished {
		return
	}
	l.finished = true
	l.manager.Close()
	if l.timer != nil {
		l.timer.Stop()
	}
	l.clock.Go(l.finish)
	l.finish = nil
}
