package lab

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/provider/clock"
)

// clients are the channels of the commands that a supervisor serves.
type clients struct {
	mu     sync.Mutex // guards what follows
	conns  map[*control.Conn]*client
	served int // clients so far
}

// A client is a command's channel.
type client struct {
	number  int  // tells channels apart
	watches bool // events are sent to it
}

// add opens a client's channel, which is known before its first request is served.
func (c *clients) add(open func() (*control.Conn, error)) (*control.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	conn, err := open()
	if err != nil {
		return nil, err
	}
	if c.conns == nil {
		c.conns = map[*control.Conn]*client{}
	}
	c.served++
	c.conns[conn] = &client{number: c.served}
	go func() {
		<-conn.Done()
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.conns, conn)
	}()
	return conn, nil
}

// number returns a client's number; 0 for one that has just gone, and with it its commands.
func (c *clients) number(conn *control.Conn) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.conns[conn]; known != nil {
		return known.number
	}
	return 0
}

// beginWatch reports whether events are to be sent to a client from now on. They are sent once.
func (c *clients) beginWatch(conn *control.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.conns[conn]
	if known == nil || known.watches {
		return false
	}
	known.watches = true
	return true
}

// farewellTime bounds how long clients may take to hear why the lab is over.
const farewellTime = 100 * time.Millisecond

// awaitGone waits until every client has had the answer to its wait request and closed its channel, but not for one
// that reads nothing because it was stopped.
func (c *clients) awaitGone() {
	c.mu.Lock()
	conns := slices.Collect(maps.Keys(c.conns))
	c.mu.Unlock()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for _, conn := range conns {
			<-conn.Done()
		}
	}()
	clock.Within(farewellTime, gone)
}
