package lease

import (
	"sync"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/provider"
)

// Bounds on how many errors of queue pairs are told of one by one, and on how often:
// when a peer goes, thousands may come at once. The others are counted.
const (
	errorsAtOnce  = 16
	errorInterval = 250 * time.Millisecond
)

// An ErrorTeller tells another process of queue pairs in error, by NoticeQPErrors. Its
// goroutine lives only while there is something to tell.
type ErrorTeller struct {
	conn *control.Conn

	sending sync.Mutex // held while a list is taken and sent, so that Flush waits for that; locked before mu

	mu      sync.Mutex // guards what follows
	waiting []provider.QPError
	more    uint64 // that came while so many waited
	telling bool   // the goroutine is there
}

// NewErrorTeller tells over conn.
func NewErrorTeller(conn *control.Conn) *ErrorTeller { return &ErrorTeller{conn: conn} }

// Tell takes an error to be told of. It does not block.
func (t *ErrorTeller) Tell(e provider.QPError) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case e.More > 0:
		t.more += e.More
	case len(t.waiting) < errorsAtOnce:
		t.waiting = append(t.waiting, e)
	default:
		t.more++
	}
	if !t.telling {
		t.telling = true
		go t.tell()
	}
}

// tell tells until there is nothing left, or the channel has ended.
func (t *ErrorTeller) tell() {
	for t.send() {
		select {
		case <-time.After(errorInterval):
		case <-t.conn.Done():
			return
		}
	}
}

// send sends what waits, as the goroutine. It is false if there was nothing, or the channel has ended.
func (t *ErrorTeller) send() bool {
	t.sending.Lock()
	defer t.sending.Unlock()
	t.mu.Lock()
	list := t.take()
	t.telling = list != nil
	t.mu.Unlock()
	return list != nil && NoticeQPErrors.Send(t.conn, list) == nil
}

// Flush sends what waits, before the process ends.
func (t *ErrorTeller) Flush() {
	t.sending.Lock()
	defer t.sending.Unlock()
	t.mu.Lock()
	list := t.take()
	t.mu.Unlock()
	if list != nil {
		_ = NoticeQPErrors.Send(t.conn, list) // the owner that does not hear of it is gone
	}
}

// take removes and returns what waits; nil if nothing does. t.mu is held.
func (t *ErrorTeller) take() []provider.QPError {
	list := t.waiting
	if t.more > 0 {
		list = append(list, provider.QPError{More: t.more})
	}
	t.waiting, t.more = nil, 0
	return list
}
