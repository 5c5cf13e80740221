// Package web serves HTTP for what looks at labs: it listens, and bounds what a client may make wait and the memory that
// it takes. Its callers say what is served, and to whom.
//
// Start reading at Serve.
package web

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/ndklab/ndklab/internal/control"
)

// The bounds on what a client may make wait. A handler that answers for longer extends them for its request.
const (
	headerTime = 5 * time.Second
	readTime   = 10 * time.Second
	WriteTime  = 30 * time.Second // of an answer, or of a part of one that goes on
	idleTime   = 5 * time.Minute
	mostHeader = 16 << 10 // bytes
)

// Listen listens at an address, HOST:PORT. The error names --listen, which commands have the address from, and the remedy.
func Listen(address string) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, control.Errorf(control.Unable, "--listen %s: %v; expected an address of this machine and a port that is free, such as 127.0.0.1:0 for any", address, err)
	}
	return listener, nil
}

// Server returns the server of a handler, which waits for no client for long.
func Server(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTime, ReadTimeout: readTime, WriteTimeout: WriteTime, IdleTimeout: idleTime, MaxHeaderBytes: mostHeader,
	}
}

// Serve serves until ctx ends or what is looked at, which closes over, has ended; ended says that this was it. Clients that are
// being answered have the time of farewell to be told so, and see the end of the connection then.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler, over <-chan struct{}, farewell time.Duration) (ended bool, err error) {
	h := Server(handler)
	served := make(chan error, 1)
	go func() { served <- h.Serve(listener) }()
	select {
	case err := <-served:
		return false, fmt.Errorf("serve %s: %w", listener.Addr(), err)
	case <-over:
		ended = true
	case <-ctx.Done():
	}
	if farewell > 0 {
		waiting, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
		_ = h.Shutdown(waiting) // who is not done in that time is cut off
		cancel()
	}
	_ = h.Close() // whoever is being answered sees the end of the connection
	<-served
	return ended, nil
}
