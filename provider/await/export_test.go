package await

import "github.com/ndklab/ndklab/provider"

// NewListener is a RequestListener at which nothing arrives but by ArriveTogether.
func NewListener() *RequestListener { return &RequestListener{more: make(chan struct{}, 1)} }

// Arrive has a request arrive.
func (l *RequestListener) Arrive(c *provider.Connector) { l.arrived(nil, c) }

// ArriveTogether has requests arrive so close together that whoever waits is
// woken once.
func (l *RequestListener) ArriveTogether(connectors ...*provider.Connector) {
	l.mu.Lock()
	l.waiting = append(l.waiting, connectors...)
	l.mu.Unlock()
	l.wake()
}
