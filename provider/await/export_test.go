package await

import "github.com/ndklab/ndklab/provider"

// NewListener is a Listener at which nothing arrives but by ArriveTogether.
func NewListener() *Listener { return &Listener{more: make(chan struct{}, 1)} }

// Arrive has a request arrive.
func (l *Listener) Arrive(c *provider.Connector) { l.arrived(nil, c) }

// ArriveTogether has requests arrive so close together that whoever waits is
// woken once.
func (l *Listener) ArriveTogether(connectors ...*provider.Connector) {
	l.mu.Lock()
	l.waiting = append(l.waiting, connectors...)
	l.mu.Unlock()
	l.wake()
}
