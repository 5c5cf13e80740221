package control

import (
	"context"
	"fmt"
	"os"
)

// A Later is a Caller of a peer that need not run yet: it is started when it is first asked or told.
type Later struct {
	begin func() (*Conn, error)
	done  <-chan struct{}
}

// NewLater returns a Later. begin returns the channel to the peer, which it starts unless that is done. It is called for
// each request and notice. done is closed when the peer can be asked no more.
func NewLater(begin func() (*Conn, error), done <-chan struct{}) *Later { return &Later{begin, done} }

// Done is closed when the peer can be asked no more.
func (l *Later) Done() <-chan struct{} { return l.done }

func (l *Later) call(ctx context.Context, method string, params, result any, files ...*os.File) error {
	conn, err := l.begin()
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	return conn.call(ctx, method, params, result, files...)
}

func (l *Later) notify(method string, params any) error {
	conn, err := l.begin()
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	return conn.notify(method, params)
}
