// Package await has blocking forms of what package provider does by callback,
// for programs that want to write a consumer in straight lines.
//
// Request and Close wait for any call that may pend. Dial, Listener and CQ join
// several calls into what nearly every consumer does: connect, wait for the next
// connection, wait for completions. All take a context; when it ends they return
// its error at once, and what was asked for goes on: closing the object ends it.
//
// The package adds nothing that a consumer could not do with the callbacks
// themselves, and must not be used from within one: a callback must not block.
//
// Start reading at Request.
package await

import (
	"context"

	"github.com/ndklab/ndklab/provider"
)

// Request waits for the end of a request. start makes it, with the completion
// and the context that it is given:
//
//	err := await.Request(ctx, func(done provider.RequestCompletion, c any) provider.Status {
//		return connector.Disconnect(done, c)
//	})
//
// The error is nil, a provider.Status, or that of ctx.
func Request(ctx context.Context, start func(completion provider.RequestCompletion, context any) provider.Status) error {
	ended := make(chan provider.Status, 1)
	status := start(func(_ any, status provider.Status) { ended <- status }, nil)
	if status == provider.StatusPending {
		select {
		case status = <-ended:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return errorOf(status)
}

// Close closes an object and waits until it is closed.
func Close(ctx context.Context, object provider.Object) error {
	return Request(ctx, func(completion provider.RequestCompletion, _ any) provider.Status {
		return object.Close(func(any) { completion(nil, provider.StatusSuccess) }, nil)
	})
}

// errorOf is a status as an error.
func errorOf(status provider.Status) error {
	if status == provider.StatusSuccess {
		return nil
	}
	return status
}
