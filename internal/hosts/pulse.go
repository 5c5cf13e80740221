package hosts

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/ndklab/ndklab/internal/control"
)

const (
	// beatInterval is the time between two signs of life.
	beatInterval = 500 * time.Millisecond
	// silenceLimit is the time without any byte after which the peer counts as gone. An outage of 1.5 s is survived.
	silenceLimit = 3 * time.Second
)

// A pulse is a connection whose reads fail when the peer is silent for silenceLimit. Every byte is a sign of life, not only
// those of beats: a beat may wait behind a long message. While nobody reads, because a handler is slow, no time counts.
type pulse struct {
	net.Conn
	mu  sync.Mutex
	end error // of the first read that failed
}

func (p *pulse) Read(b []byte) (int, error) {
	err := p.SetReadDeadline(time.Now().Add(silenceLimit))
	n := 0
	if err == nil {
		n, err = p.Conn.Read(b)
	}
	if err != nil {
		p.mu.Lock()
		if p.end == nil {
			p.end = err
		}
		p.mu.Unlock()
	}
	return n, err
}

// reason says why the connection has ended, and whether that was by silence.
func (p *pulse) reason() (reason string, silent bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case errors.Is(p.end, os.ErrDeadlineExceeded):
		return fmt.Sprintf("nothing was heard for %v: its process was stopped, or the network between is gone", silenceLimit), true
	case p.end == nil, errors.Is(p.end, io.EOF), errors.Is(p.end, net.ErrClosed):
		return "its process has ended", false
	}
	return fmt.Sprintf("its process has ended, or the network between is gone (%v)", p.end), false
}

// beat tells the peer of a channel that this process lives, until the channel ends.
func beat(c *control.Conn) {
	tick := time.NewTicker(beatInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			// When it fails, the channel has ended.
			_ = noticeBeat.Send(c, nil)
		case <-c.Done():
			return
		}
	}
}
