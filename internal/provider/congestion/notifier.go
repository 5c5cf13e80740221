package congestion

import (
	"fmt"
	"time"
)

// A Scope says for what a notification point counts the time between two CNPs.
type Scope uint8

// The scopes.
const (
	PerQP      Scope = iota
	PerAddress       // of the peer
	PerPort
)

// A CNP has the parameters of a notification point (roce.md 14.2).
type CNP struct {
	DSCP    uint8         // of CNPs, 0 to 63
	MinTime time.Duration // between two CNPs: MIN_TIME_BETWEEN_CNPS
	Delay   time.Duration // from a marked packet to its CNP
	Per     Scope
}

// ConnectXCNP returns the parameters that NVIDIA documents as the defaults of ConnectX adapters
// (roce.md 14.3), for senders with those of ConnectX.
func ConnectXCNP() CNP { return CNP{DSCP: 48, MinTime: 4 * time.Microsecond} }

// PaperCNP returns the parameters of the DCQCN paper, for senders with those of Paper.
func PaperCNP() CNP { return CNP{DSCP: 48, MinTime: 50 * time.Microsecond} }

// DCTCPCNP returns the parameters of a receiver for senders with DCTCP: each marked packet makes a
// CNP, as they count them.
func DCTCPCNP() CNP { return CNP{DSCP: 48} }

// Validate returns an error that names the first parameter that makes no sense, and its range.
func (c *CNP) Validate() error {
	switch {
	case c.DSCP > 63:
		return fmt.Errorf("congestion: dscp of CNPs is %d, want 0 to 63", c.DSCP)
	case c.MinTime < 0:
		return fmt.Errorf("congestion: min_time of CNPs is %v, want 0 or more", c.MinTime)
	case c.Delay < 0:
		return fmt.Errorf("congestion: delay of CNPs is %v, want 0 or more", c.Delay)
	case c.Per > PerPort:
		return fmt.Errorf("congestion: CNPs are counted per %d, want %d to %d", c.Per, PerQP, PerPort)
	}
	return nil
}

// A Notifier decides when a CNP is to be sent. A marked packet calls for one, unless one was
// called for less than MinTime before.
type Notifier struct {
	last   time.Duration // when the last was called for
	called bool          // one ever was
}

// Marked takes note of a packet that arrived marked, and reports whether a CNP is to be sent,
// after CNP.Delay.
func (n *Notifier) Marked(now time.Duration, c *CNP) bool {
	if n.called && now-n.last < c.MinTime {
		return false
	}
	n.last, n.called = now, true
	return true
}
