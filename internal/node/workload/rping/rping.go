// Package rping is both ends of rdma-core's rping, the first program by which one
// RDMA implementation tries another (roce.md 16.1).
//
// In every round the client lends a buffer of text, which the server READs, and
// then one of the same size, to which the server WRITEs the text back. Each of
// these four steps ends with a SEND of 16 bytes. Package rping speaks it as a
// consumer of the provider, so that the peer may be any implementation.
package rping

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/await"
)

// Defaults of rping.
const (
	DefaultPort = 7174
	DefaultSize = 64
)

// The sizes of text, bytes with the final zero (rping's RPING_MIN_BUFSIZE and
// RPING_BUFSIZE).
const (
	MinSize = 28
	MaxSize = 65535
)

// Options set how an end does it.
type Options struct {
	Size    int       // of the client's text and of the server's buffer, bytes, MinSize to MaxSize
	Verbose io.Writer // where the text of every round goes; nil if nobody wants it
	// Local is the client's address. The zero Addr is the one that packets to the
	// server come from.
	Local netip.Addr
}

// MessageLen is the length of every message, in bytes: a client's lends a Buffer, and a
// server's have the same length and say nothing.
const MessageLen = 16

// A Buffer is memory that one end lends the other.
type Buffer struct {
	Address     uint64
	Token, Size uint32 // Size in bytes
}

// Encode writes the message that lends the buffer: its address (8 bytes), token and size
// (4 bytes each), big-endian.
func (b Buffer) Encode(message []byte) {
	binary.BigEndian.PutUint64(message, b.Address)
	binary.BigEndian.PutUint32(message[8:], b.Token)
	binary.BigEndian.PutUint32(message[12:], b.Size)
}

// DecodeBuffer returns the buffer that a message lends.
func DecodeBuffer(message []byte) Buffer {
	return Buffer{binary.BigEndian.Uint64(message), binary.BigEndian.Uint32(message[8:]), binary.BigEndian.Uint32(message[12:])}
}

// An end is one end of the connection.
type end struct {
	Options
	qp       *await.QP
	messages *await.Memory // one to send, then one to receive
	text     *await.Memory
	sink     *await.Memory // the client's, for the server to write to
}

var errDisconnected = errors.New("the peer has ended the connection")

// open makes what both ends need. It has posted its first receive.
func open(ctx context.Context, adapter *provider.Adapter, o Options) (e *end, closeAll func(), err error) {
	if o.Size < MinSize || o.Size > MaxSize {
		return nil, nil, fmt.Errorf("size %d, expected %d to %d bytes", o.Size, MinSize, MaxSize)
	}
	e = &end{Options: o}
	var open []func()
	closeAll = func() {
		for i := len(open) - 1; i >= 0; i-- {
			open[i]()
		}
	}
	defer func() {
		if err != nil {
			closeAll()
		}
	}()
	pd, err := await.Create(ctx, adapter.CreatePD)
	if err != nil {
		return nil, nil, fmt.Errorf("create PD: %w", err)
	}
	open = append(open, func() { pd.Close(nil, nil) })
	if e.qp, err = await.NewQP(ctx, adapter, pd, 4, 1); err != nil {
		return nil, nil, fmt.Errorf("create QP: %w", err)
	}
	open = append(open, e.qp.Close)
	for _, m := range []struct {
		memory **await.Memory
		size   int
		rights provider.MRFlags
	}{
		{&e.messages, 2 * MessageLen, provider.MRAllowLocalWrite},
		{&e.text, o.Size, provider.MRAllowLocalWrite | provider.MRAllowRemoteRead},
		{&e.sink, o.Size, provider.MRAllowRemoteWrite},
	} {
		memory, err := await.Register(ctx, pd, m.size, m.rights)
		if err != nil {
			return nil, nil, err
		}
		*m.memory = memory
		open = append(open, func() { memory.Close(nil, nil) })
	}
	return e, closeAll, e.expect()
}

// Serve waits for one client at an address of the adapter's and serves it until
// it disconnects. listening, if not nil, is called once a client may come.
func Serve(ctx context.Context, adapter *provider.Adapter, address netip.AddrPort, o Options, listening func()) error {
	e, closeAll, err := open(ctx, adapter, o)
	if err != nil {
		return err
	}
	defer closeAll()
	listener, err := await.Listen(ctx, adapter, address)
	switch {
	case errors.Is(err, provider.StatusSharingViolation):
		return fmt.Errorf("listen at %v: another program in the node does: %w", address, err)
	case errors.Is(err, provider.StatusInvalidAddress):
		return fmt.Errorf("listen at %v: this is no address of the adapter: %w", address, err)
	case err != nil:
		return fmt.Errorf("listen at %v: %w", address, err)
	}
	defer listener.Close(ctx)
	if listening != nil {
		listening()
	}
	connection, err := listener.Next(ctx)
	if err != nil {
		return err
	}
	defer connection.Close(nil, nil)
	ctx, lost := context.WithCancelCause(ctx)
	defer lost(nil)
	err = await.Accept(ctx, connection, e.qp.QP, await.Options{
		InboundReadLimit: 1, OutboundReadLimit: 1, Disconnected: func() { lost(errDisconnected) },
	})
	if err != nil {
		return fmt.Errorf("accept: %w", err)
	}
	for round := 0; ; round++ {
		err := e.serveRound(ctx, round)
		if errors.Is(err, errBetweenRounds) && context.Cause(ctx) == errDisconnected {
			return nil
		}
		if err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
}

// errBetweenRounds wraps why a round did not begin.
var errBetweenRounds = errors.New("no further round")

func (e *end) serveRound(ctx context.Context, round int) error {
	from, err := e.lent(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", errBetweenRounds, err)
	}
	text := e.text.SGL(0, int(from.Size))
	if _, err := e.qp.Done(ctx, e.qp.Read(nil, text, from.Address, from.Token, 0)); err != nil {
		return fmt.Errorf("read: %w", err)
	}
	e.tell("server ping data: ", e.text.Bytes[:from.Size])
	if err := e.send(Buffer{}); err != nil {
		return err
	}
	to, err := e.lent(ctx)
	if err != nil {
		return err
	}
	if to.Size < from.Size {
		return fmt.Errorf("the client lent %d bytes, and then %d for the answer", from.Size, to.Size)
	}
	if _, err := e.qp.Done(ctx, e.qp.Write(nil, text, to.Address, to.Token, 0)); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return e.send(Buffer{})
}

// Call connects to a server and does so many rounds with it. Every answer is
// compared byte for byte.
func Call(ctx context.Context, adapter *provider.Adapter, server netip.AddrPort, rounds int, o Options) error {
	e, closeAll, err := open(ctx, adapter, o)
	if err != nil {
		return err
	}
	defer closeAll()
	ctx, lost := context.WithCancelCause(ctx)
	defer lost(nil)
	connection, err := await.Dial(ctx, adapter, e.qp.QP, o.Local, server, await.Options{
		InboundReadLimit: 1, OutboundReadLimit: 1, Disconnected: func() { lost(errDisconnected) },
	})
	switch {
	case errors.Is(err, provider.StatusConnectionRefused):
		return fmt.Errorf("connect to %v: nobody listens there: %w", server, err)
	case errors.Is(err, provider.StatusIOTimeout):
		return fmt.Errorf("connect to %v: no answer: nobody has this address, or its link is down: %w", server, err)
	case errors.Is(err, provider.StatusInvalidAddress) && o.Local.IsValid():
		return fmt.Errorf("connect to %v: %v is no address of the adapter: %w", server, o.Local, err)
	case err != nil:
		return fmt.Errorf("connect to %v: %w", server, err)
	}
	defer connection.Close(nil, nil)
	for round := range rounds {
		if err := e.callRound(ctx, round); err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	if err := await.Disconnect(ctx, connection); err != nil {
		return fmt.Errorf("disconnect: %w", err)
	}
	return nil
}

func (e *end) callRound(ctx context.Context, round int) error {
	Fill(e.text.Bytes, round)
	clear(e.sink.Bytes)
	for _, memory := range []*await.Memory{e.text, e.sink} {
		// Memory that is registered by itself has addresses that begin at 0.
		if err := e.send(Buffer{Token: memory.RemoteToken(), Size: uint32(e.Size)}); err != nil {
			return err
		}
		if _, err := e.receive(ctx); err != nil {
			return err
		}
	}
	e.tell("ping data: ", e.sink.Bytes)
	if at := mismatch(e.sink.Bytes, e.text.Bytes); at >= 0 {
		return fmt.Errorf("byte %d came back as %#x, want %#x", at, e.sink.Bytes[at], e.text.Bytes[at])
	}
	return nil
}

// Fill writes the text of a round as rping does: a number and the characters from
// A to z, which begin one further on in every round; then a zero.
func Fill(text []byte, round int) {
	const first, last = 'A', 'z'
	var start [32]byte
	n := copy(text, append(strconv.AppendInt(append(start[:0], "rdma-ping-"...), int64(round), 10), ": "...))
	for i := range text[n:] {
		text[n+i] = byte(first + (round+i)%(last-first+1))
	}
	text[len(text)-1] = 0
}

// mismatch returns the index at which two texts differ first, or -1.
func mismatch(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

// tell writes a text up to its zero.
func (e *end) tell(who string, text []byte) {
	if e.Verbose != nil {
		text, _, _ = bytes.Cut(text, []byte{0})
		// An error of a terminal is no failure of the exchange.
		_, _ = fmt.Fprintf(e.Verbose, "%s%s\n", who, text)
	}
}

// send sends a message and does not wait: the peer's next one says that it has
// arrived.
func (e *end) send(b Buffer) error {
	b.Encode(e.messages.Bytes[:MessageLen])
	if status := e.qp.Send(nil, e.messages.SGL(0, MessageLen), provider.OpSilentSuccess); status != provider.StatusSuccess {
		return fmt.Errorf("send: %w", status)
	}
	return nil
}

// expect posts the receive of the next message.
func (e *end) expect() error {
	if status := e.qp.Receive(nil, e.messages.SGL(MessageLen, MessageLen)); status != provider.StatusSuccess {
		return fmt.Errorf("post a receive: %w", status)
	}
	return nil
}

// receive waits for a message and expects the next.
func (e *end) receive(ctx context.Context) (b Buffer, err error) {
	r, err := e.qp.Received(ctx)
	if err == nil && r.BytesTransferred != MessageLen {
		err = fmt.Errorf("a message of %d bytes, expected %d", r.BytesTransferred, MessageLen)
	}
	if err != nil {
		return b, fmt.Errorf("receive: %w", err)
	}
	return DecodeBuffer(e.messages.Bytes[MessageLen:]), e.expect()
}

// lent waits for a buffer that fits ours.
func (e *end) lent(ctx context.Context) (Buffer, error) {
	b, err := e.receive(ctx)
	if err == nil && (b.Size == 0 || int(b.Size) > e.Size) {
		err = fmt.Errorf("the client lent %d bytes, expected 1 to %d: it needs a server of its own size", b.Size, e.Size)
	}
	return b, err
}
