package control

import (
	"context"
	"encoding/json"
	"errors"
)

// noticeQueue is the number of notices that may wait for their handler before the reader
// waits with them.
const noticeQueue = 64

// read takes messages off the socket until it ends.
func (c *Conn) read() {
	defer c.readers.Done()
	defer c.carrier.end()
	defer c.cancel()
	notices := make(chan *message, noticeQueue)
	defer close(notices)
	go c.serveNotices(notices)
	for {
		m, err := c.carrier.read(c.longest)
		if err != nil {
			return // the end of the channel; whoever waits learns by its context
		}
		request := m.Method != "" && m.ID != 0 && !m.Cancel
		if !request {
			closeFiles(m.files) // nothing else carries any
		}
		switch {
		case request:
			ctx, ok := c.begin(m.ID)
			if !ok {
				closeFiles(m.files)
				return // the peer is confused; so would be its answers
			}
			go c.serve(ctx, m)
		case m.Cancel:
			c.mu.Lock()
			if cancel := c.serving[m.ID]; cancel != nil {
				cancel()
			}
			c.mu.Unlock()
		case m.Method != "":
			select {
			case notices <- m:
			case <-c.ctx.Done():
			}
		default:
			c.mu.Lock()
			answer := c.calls[m.ID]
			delete(c.calls, m.ID) // a second answer is nobody's
			c.mu.Unlock()
			if answer != nil {
				answer <- m
			}
		}
	}
}

// begin makes the context of request id; false if one of that number is being
// served, or more than are for a peer that is not trusted. end must follow.
func (c *Conn) begin(id uint64) (context.Context, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, twice := c.serving[id]
	if twice || c.longest < MaxMessage && c.unanswered == boundedRequests {
		return nil, false
	}
	ctx, cancel := context.WithCancel(c.ctx)
	c.serving[id] = cancel
	c.unanswered++
	return ctx, true
}

func (c *Conn) end(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serving[id]()
	delete(c.serving, id)
}

func (c *Conn) serveNotices(notices <-chan *message) {
	defer close(c.noticed)
	for m := range notices {
		if c.handler != nil {
			// A notice has no answer, hence nobody to report an error to.
			_, _ = c.handler(c.ctx, &Request{Method: m.Method, Params: m.Params, Conn: c, Notice: true, behind: m.Behind})
		}
	}
}

func (c *Conn) serve(ctx context.Context, m *message) {
	answer := c.answer(ctx, m)
	settle(ctx, m.streams)
	c.end(m.ID)
	err := c.send(c.ctx, answer, nil)
	if err != nil && !errors.Is(err, ErrClosed) {
		// The answer cannot be sent, but somebody waits for one.
		_ = c.send(c.ctx, &message{ID: m.ID, Error: AsError(err)}, nil)
	}
	c.mu.Lock()
	c.unanswered--
	c.mu.Unlock()
}

// answer has the handler do what m asks.
func (c *Conn) answer(ctx context.Context, m *message) *message {
	r := &Request{Method: m.Method, Params: m.Params, Files: m.files, Conn: c, behind: m.Behind}
	defer func() { closeFiles(r.Files) }() // of which the handler may have kept some
	if m.failed != nil {
		return &message{ID: m.ID, Error: AsError(m.failed)}
	}
	if c.handler == nil {
		return &message{ID: m.ID, Error: unknown(m.Method)}
	}
	result, err := c.handler(ctx, r)
	body, passed := result.(json.RawMessage) // by Relay: JSON already
	if err == nil && !passed {
		body, err = json.Marshal(result)
	}
	if err != nil {
		return &message{ID: m.ID, Error: AsError(err), Closed: r.relayed && errors.Is(err, ErrClosed)}
	}
	return &message{ID: m.ID, Result: body}
}
