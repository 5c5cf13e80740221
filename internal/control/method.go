package control

import (
	"context"
	"fmt"
	"os"
	"strconv"
)

// A Caller is asked and told: a *Conn, whose peer is, or a *Route, by which the one behind
// a peer is.
type Caller interface {
	// call is Method.Call. The answer is read into result unless that is nil.
	call(ctx context.Context, method string, params, result any, files ...*os.File) error
	// notify is Notice.Send.
	notify(method string, params any) error
	// Done is closed when the one that is asked can be asked no more.
	Done() <-chan struct{}
}

// None stands for no parameters and for no result. Its only value is nil.
type None = *struct{}

// A Method is a request: its name on the wire, its parameters and its result. It is
// declared once, as a variable that both ends of a channel use: one calls it, the other
// handles it.
type Method[Params, Result any] struct {
	name        string
	least, most int // files of a request
}

// NewMethod makes the method of a name. Its requests carry no files.
func NewMethod[Params, Result any](name string) Method[Params, Result] {
	return Method[Params, Result]{name: name}
}

// WithFiles returns the method with requests that carry between least and most files,
// of which there may be MaxFiles.
func (m Method[Params, Result]) WithFiles(least, most int) Method[Params, Result] {
	m.least, m.most = least, most
	return m
}

// Call asks the peer of c and waits for its answer. files are sent along and stay the
// caller's. When ctx ends, the peer is told and the call fails with ctx's error, also if
// the peer has stopped reading; when the channel ends, it fails with ErrClosed. A failure
// that the peer reported is an *Error. With an error, the result is the zero value.
func (m Method[Params, Result]) Call(ctx context.Context, c Caller, params Params, files ...*os.File) (Result, error) {
	var result, none Result
	if err := c.call(ctx, m.name, params, &result, files...); err != nil {
		return none, err // not what was read of an answer
	}
	return result, nil
}

// Handle has handle answer the method's requests to mux. A request with other parameters
// or another number of files is answered with an *Error of code Usage instead. Handle
// panics if mux has a handler of that name: this is a mistake of the program's, which
// every run of it makes.
func (m Method[Params, Result]) Handle(mux *Mux, handle func(ctx context.Context, r *Request, params Params) (Result, error)) {
	mux.add(m.name, func(ctx context.Context, r *Request) (any, error) {
		if n := len(r.Files); n < m.least || n > m.most {
			return nil, Errorf(Usage, "%s: %d files, expected %s", m.name, n, between(m.least, m.most))
		}
		var params Params
		if _, none := any(params).(None); !none {
			if err := r.decode(&params); err != nil {
				return nil, err
			}
		}
		return handle(ctx, r, params)
	})
}

func between(least, most int) string {
	if least == most {
		return strconv.Itoa(least)
	}
	return fmt.Sprintf("%d to %d", least, most)
}

// A Procedure is a Method without a result.
type Procedure[Params any] struct{ method Method[Params, None] }

// NewProcedure makes the procedure of a name. Its requests carry no files.
func NewProcedure[Params any](name string) Procedure[Params] {
	return Procedure[Params]{NewMethod[Params, None](name)}
}

// WithFiles is Method.WithFiles.
func (p Procedure[Params]) WithFiles(least, most int) Procedure[Params] {
	return Procedure[Params]{p.method.WithFiles(least, most)}
}

// Call asks the peer of c and waits until it has done so; see Method.Call.
func (p Procedure[Params]) Call(ctx context.Context, c Caller, params Params, files ...*os.File) error {
	_, err := p.method.Call(ctx, c, params, files...)
	return err
}

// Handle is Method.Handle.
func (p Procedure[Params]) Handle(mux *Mux, handle func(ctx context.Context, r *Request, params Params) error) {
	p.method.Handle(mux, func(ctx context.Context, r *Request, params Params) (None, error) {
		return nil, handle(ctx, r, params)
	})
}

// A Notice describes a message that one end sends the other and expects no answer to: its
// name on the wire and its parameters. It carries no files. A peer that sends it as a
// request is told when it has been handled.
type Notice[Params any] struct{ procedure Procedure[Params] }

// NewNotice makes the notice of a name.
func NewNotice[Params any](name string) Notice[Params] {
	return Notice[Params]{NewProcedure[Params](name)}
}

// Send tells the peer of c. Notices arrive in the order they were sent. It blocks while the
// peer does not read.
func (n Notice[Params]) Send(c Caller, params Params) error {
	return c.notify(n.procedure.method.name, params)
}

// Handle has handle take the notices to mux, one after the other; see Handler. It
// panics as Method.Handle does.
func (n Notice[Params]) Handle(mux *Mux, handle func(ctx context.Context, r *Request, params Params) error) {
	n.procedure.Handle(mux, handle)
}

// A Mux has the handlers of the methods and notices that one end of a channel knows. The
// zero value knows none. All are added before its Serve is given to a Conn.
type Mux struct {
	handlers map[string]Handler
	rest     Handler // of what handlers have none for; nil: nobody
	// within is the mux that has the handlers, which are called when check returns nil;
	// both are nil unless When has made this one.
	within *Mux
	check  func() error

	find func(to string) (Handler, error) // see Forward
}

// When returns a mux that adds to this one handlers which are called only when check
// returns nil. Otherwise the error of check is the answer.
func (mux *Mux) When(check func() error) *Mux { return &Mux{within: mux, check: check} }

// Rest has h handle what mux has no other handler for.
func (mux *Mux) Rest(h Handler) { mux.rest = h }

func (mux *Mux) add(name string, h Handler) {
	switch {
	case mux.within != nil:
		mux.within.add(name, func(ctx context.Context, r *Request) (any, error) {
			if err := mux.check(); err != nil {
				return nil, err
			}
			return h(ctx, r)
		})
	case mux.handlers[name] != nil:
		panic(fmt.Sprintf("control: %q has a handler already", name))
	default:
		if mux.handlers == nil {
			mux.handlers = map[string]Handler{}
		}
		mux.handlers[name] = h
	}
}

// Serve is a Handler, which calls the one that mux has of what r asks. It answers what mux
// has none of with an *Error of code Usage. It is not for a mux that When returned.
func (mux *Mux) Serve(ctx context.Context, r *Request) (any, error) {
	if r.behind != "" {
		return mux.serveBehind(ctx, r)
	}
	switch h := mux.handlers[r.Method]; {
	case h != nil:
		return h(ctx, r)
	case mux.rest != nil:
		return mux.rest(ctx, r)
	}
	return nil, unknown(r.Method)
}

func unknown(method string) *Error { return Errorf(Usage, "unknown request %q", method) }
