package control

import (
	"context"
	"os"
)

// Relay passes what the peer of r's channel asks or says on to the peer of another, and
// returns the answer as it is. Files go along, and those of this process are closed once
// they have gone: an end that came there would not come here otherwise. A Handler that
// answers for somebody else returns it. The order of notices is kept. If the other channel
// has ended, the caller gets ErrClosed.
func Relay(ctx context.Context, r *Request, to *Conn) (any, error) {
	return relay(ctx, r, to, r.behind)
}

// relay is Relay to the one behind to's peer, or to that peer itself.
func relay(ctx context.Context, r *Request, to *Conn, behind string) (any, error) {
	r.relayed = true
	m := &message{Method: r.Method, Params: r.Params, Behind: behind}
	if r.Notice {
		return nil, to.tell(m)
	}
	result, err := to.exchange(ctx, m, r.Files, func() {
		closeFiles(r.Files)
		clear(r.Files)
	})
	if err != nil {
		return nil, err
	}
	return result, nil
}

// A Route is a Caller of one that is behind the peer of a channel, which answers by Mux.Forward.
type Route struct {
	conn *Conn
	to   string
}

// Behind returns the route by which the peer of c reaches the one that it calls to.
func Behind(c *Conn, to string) *Route { return &Route{c, to} }

// Done is closed when the channel to the peer has ended. The end of the one behind it is
// told by ErrClosed when it is asked.
func (r *Route) Done() <-chan struct{} { return r.conn.Done() }

func (r *Route) call(ctx context.Context, method string, params, result any, files ...*os.File) error {
	return r.conn.callBehind(ctx, r.to, method, params, result, files)
}

func (r *Route) notify(method string, params any) error {
	return r.conn.notifyBehind(r.to, method, params)
}

// Forward has mux give what is asked of, and said to, somebody behind this process to the handler that
// find returns by the name. An error of find's is the answer. An error of either that is ErrClosed arrives as that.
func (mux *Mux) Forward(find func(to string) (Handler, error)) { mux.find = find }

// serveBehind serves what is not for this process itself.
func (mux *Mux) serveBehind(ctx context.Context, r *Request) (any, error) {
	if mux.find == nil {
		return nil, Errorf(Usage, "%s: nobody is behind this process, and %q was asked", r.Method, r.behind)
	}
	r.relayed = true
	h, err := mux.find(r.behind)
	if err != nil {
		return nil, err
	}
	own := *r
	own.behind = "" // as the peer of h's own channel would ask it
	return h(ctx, &own)
}
