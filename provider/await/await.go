// Package await has calls that block for what package provider does by callback, for programs that
// want to write a consumer in straight lines. It has two levels.
//
// An Endpoint is the front door. It opens an adapter, registers memory, dials and listens; its
// Conns send, receive, read and write; its Close closes everything in the order that NDKPI asks
// for. An Endpoint and what is made on it may be used by any number of goroutines.
//
// Request, Create and Close wait for one call that may pend. Dial, Accept, RequestListener, CQ, QP
// and Memory join several, for consumers that make the objects themselves: a CQ of many queue
// pairs, say, or an SRQ.
//
// A call that may take time takes a context. When the context ends, the call returns its cause
// (context.Cause) at once. The operation that was asked for goes on, but for the methods of Conn
// that say otherwise: closing the object ends it.
//
// The package adds nothing that a consumer could not do with the callbacks themselves, and must not
// be used from within one: a callback must not block.
//
// Start reading at Open, or at Request.
package await

import (
	"context"
	"fmt"
	"reflect"

	"github.com/ndklab/ndklab/provider"
)

// Request waits for the end of a request. start makes it, with the completion
// and the context that it is given:
//
//	err := await.Request(ctx, func(done provider.RequestCompletion, c any) provider.Status {
//		return connector.Disconnect(done, c)
//	})
//
// The error is nil, a provider.Status, or the cause of ctx's end.
func Request(ctx context.Context, start func(completion provider.RequestCompletion, context any) provider.Status) error {
	ended := make(chan provider.Status, 1)
	status := start(func(_ any, status provider.Status) { ended <- status }, nil)
	if status == provider.StatusPending {
		select {
		case status = <-ended:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return errorOf(status)
}

// Create waits for the end of a create, and returns its object:
//
//	pd, err := await.Create(ctx, adapter.CreatePD)
//
// If ctx ends before, the object is closed as soon as there is one. The error is
// like Request's, and names the kind of object.
func Create[T provider.Object](ctx context.Context, create func(provider.CreateCompletion, any) (T, provider.Status)) (object T, err error) {
	type end struct {
		object provider.Object
		status provider.Status
	}
	ended := make(chan end, 1)
	object, status := create(func(_ any, status provider.Status, object provider.Object) {
		ended <- end{object, status}
	}, nil)
	if status == provider.StatusPending {
		select {
		case e := <-ended:
			status = e.status
			object, _ = e.object.(T)
		case <-ctx.Done():
			go func() {
				if e := <-ended; e.status == provider.StatusSuccess {
					e.object.Close(nil, nil)
				}
			}()
			err = context.Cause(ctx)
		}
	}
	if err == nil {
		err = errorOf(status)
	}
	if err != nil {
		kind := reflect.TypeFor[T]().Elem().Name()
		err = fmt.Errorf("create %s: %w", kind, err)
	}
	return object, err
}

// Close closes an object and waits until it is closed.
func Close(ctx context.Context, object provider.Object) error {
	return Request(ctx, func(completion provider.RequestCompletion, _ any) provider.Status {
		return object.Close(func(any) { completion(nil, provider.StatusSuccess) }, nil)
	})
}

// errorOf returns a status as an error.
func errorOf(status provider.Status) error {
	if status == provider.StatusSuccess {
		return nil
	}
	return status
}
