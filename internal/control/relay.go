package control

import "context"

// Relay passes what the peer of r's channel asks or says on to the peer of another, and
// returns the answer as it is. Files go along, and those of this process are closed once
// they have gone: an end that came there would not come here otherwise. It is what a Handler
// returns that answers for somebody else. The order of notices is kept.
func Relay(ctx context.Context, r *Request, to *Conn) (any, error) {
	if r.Notice {
		return nil, to.tell(&message{Method: r.Method, Params: r.Params})
	}
	result, err := to.exchange(ctx, r.Method, r.Params, r.Files, func() {
		closeFiles(r.Files)
		clear(r.Files)
	})
	if err != nil {
		return nil, err
	}
	return result, nil
}
