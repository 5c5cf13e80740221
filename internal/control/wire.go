package control

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// A message is, over a Unix socket, its length in four bytes, big-endian, which carry
// the descriptors, then JSON. Over a stream, a frame has the JSON.
type message struct {
	ID     uint64          `json:"id,omitempty"`
	Method string          `json:"method,omitempty"` // of requests (with ID) and notices (without)
	Cancel bool            `json:"cancel,omitempty"` // the caller of request ID gave up
	Params json.RawMessage `json:"params,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  *Error          `json:"error,omitempty"`
	Behind string          `json:"behind,omitempty"` // who is asked, or says it, if not the peer; see Behind
	Closed bool            `json:"closed,omitempty"` // the answer of one that is gone
	files  []*os.File      // received with it

	// streams are those of its files where the channel is over a stream, and lent says that
	// terminals among them are the peer's alone; see Lend.
	streams []*stream
	lent    bool
	failed  error // why its files could not be made here
}

// headLen is the length of what comes before the JSON, bytes.
const headLen = 4

// appendTo appends a message as it is on the wire. Params and Result are JSON already, and go in as they are: package json would go
// through all of them, which of an answer on thousands of nodes takes as long as making it.
func (m *message) appendTo(b []byte) ([]byte, error) {
	envelope := *m
	envelope.Params, envelope.Result = nil, nil
	text, err := json.Marshal(&envelope)
	if err != nil {
		return nil, err
	}
	b = slices.Grow(b, headLen+len(text)+len(m.Params)+len(m.Result)+32)
	start := len(b)
	b = append(append(b, make([]byte, headLen)...), text[:len(text)-1]...)
	for _, body := range []struct {
		name string
		json json.RawMessage
	}{{`"params":`, m.Params}, {`"result":`, m.Result}} {
		if len(body.json) == 0 {
			continue
		}
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		b = append(append(b, body.name...), body.json...)
	}
	b = append(b, '}')
	binary.BigEndian.PutUint32(b[start:], uint32(len(b)-start-headLen))
	return b, nil
}

// closeFiles closes files, of which some may be nil.
func closeFiles(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// errTooLong is a message that is over MaxMessage.
var errTooLong = fmt.Errorf("message over the limit of %d bytes", MaxMessage)

// send writes a message, or fails with ctx's error, ErrClosed, or because the
// message cannot be sent.
func (c *Conn) send(ctx context.Context, m *message, files []*os.File) error {
	buf, err := m.appendTo(nil)
	if err != nil {
		return err
	}
	if len(buf)-headLen > MaxMessage {
		return errTooLong
	}
	if len(files) > MaxFiles {
		return fmt.Errorf("%d files with one request, at most %d can be", len(files), MaxFiles)
	}
	if err := ctx.Err(); err != nil {
		return c.reason(err)
	}
	select {
	case c.writing <- struct{}{}:
	case <-ctx.Done():
		return c.reason(ctx.Err())
	case <-c.ctx.Done():
		return ErrClosed
	}
	if ctx == c.ctx {
		defer func() { <-c.writing }()
		return c.carrier.write(m, buf, nil)
	}
	// A message that is half written when ctx ends has to be finished, or the
	// channel is lost: a goroutine does so, with descriptors of its own because
	// the caller may then close its files.
	rights, err := duplicate(files)
	if err != nil {
		<-c.writing
		return err
	}
	written := make(chan error, 1)
	go func() {
		defer func() { <-c.writing }()
		written <- c.carrier.write(m, buf, rights)
	}()
	select {
	case err := <-written:
		return err
	case <-ctx.Done():
		go func() {
			<-written
			abandon(m.streams)
		}()
		return ctx.Err()
	}
}

// reason is err, or ErrClosed if the channel has ended: the end of c.ctx is no
// caller's giving up.
func (c *Conn) reason(err error) error {
	if c.ctx.Err() != nil {
		return ErrClosed
	}
	return err
}

// duplicate makes descriptors for the same open files, which the caller closes.
func duplicate(files []*os.File) ([]int, error) {
	fds := make([]int, 0, len(files))
	for _, f := range files {
		// Not File.Fd, which would make the caller's file blocking.
		raw, err := f.SyscallConn()
		if err == nil {
			var dupErr error
			err = raw.Control(func(fd uintptr) {
				var dup int
				if dup, dupErr = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0); dupErr == nil {
					fds = append(fds, dup)
				}
			})
			if err == nil {
				err = dupErr
			}
		}
		if err != nil {
			closeAll(fds)
			return nil, fmt.Errorf("file to send: %w", err)
		}
	}
	return fds, nil
}

// duplicateFile makes another file for the same open file.
func duplicateFile(f *os.File) (*os.File, error) {
	if f == nil {
		return nil, nil
	}
	fds, err := duplicate([]*os.File{f})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fds[0]), f.Name()), nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}
