package control

import (
	"context"
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// A stream is a file of a request at one end of a channel over a stream. It lasts as long as
// somebody has the file open, or the channel.
type stream struct {
	carrier *streams
	id      streamID
	out     *outflow  // nil unless the peer reads the file
	in      *inflow   // nil unless the peer writes to it
	changed sync.Cond // on carrier.mu

	lent *lentTerminal // of who sent it: not nil for a terminal that is raw meanwhile
	made bool          // of who received it: a terminal that was made for it
}

// An outflow sends what is read of a file. carrier.mu guards all but the file.
type outflow struct {
	file    file
	credit  int  // bytes that the peer has room for
	stopped bool // no more is wanted
	// draining is the number of bytes that may still be there of those that were written
	// before an answer: the file is read until they are sent, or it is empty. 0: nobody waits.
	draining int
	over     bool // the peer was told that no more comes
}

// An inflow writes what comes to a file. carrier.mu guards all but the file.
type inflow struct {
	file              file
	buf               []byte // what has come, of which the first from bytes are written
	from              int
	spare             []byte // what buf was before
	room              int    // bytes that the peer may still send
	owed              int    // bytes of which it was not told yet that there is room for them
	received, written uint64
	ended             bool // no more comes
	shutdown          bool // as somebody said there, who may have the file still
	aborted           bool // what has come is not wanted any more
	refused           bool // the peer was told that no more is taken
	over              bool // the file is closed
}

// mostHeld bounds what a file holds that was written and is not read: a pipe of an ordinary
// user (pipe-max-size, pipe(7)).
const mostHeld = 1 << 20

// flow gives a stream its flows, which have descriptors of their own for the file fd.
func (s *stream) flow(fd int, out, in bool) error {
	s.changed.L = &s.carrier.mu
	if out {
		f, err := adoptCopy(fd)
		if err != nil {
			return err
		}
		s.out = &outflow{file: f, credit: window}
	}
	if in {
		f, err := adoptCopy(fd)
		if err != nil {
			return err
		}
		s.in = &inflow{file: f, room: window}
	}
	return nil
}

// make makes what a request has for a file that the peer sent. If that fails, the stream has
// files that are over.
func (s *stream) make(e *entry) (*os.File, error) {
	var fds [2]int
	var err error
	out, in := e.passage != outward, e.passage != inward
	switch e.passage {
	case outward:
		if err = unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err == nil {
			fds[0], fds[1] = fds[1], fds[0] // the first is ours
		}
	case inward:
		err = unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK)
	case both:
		fds, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	case lentTerm:
		s.made = true
		fds, err = makeTerminal(e.state)
	}
	if err == nil {
		defer unix.Close(fds[0])
		if err = s.flow(fds[0], out, in); err == nil {
			return os.NewFile(uintptr(fds[1]), "received"), nil
		}
		unix.Close(fds[1])
		if s.out != nil {
			s.out.file.close()
		}
	}
	s.changed.L = &s.carrier.mu
	if out {
		s.out = &outflow{file: lostFile{}, credit: window}
	}
	if in {
		s.in = &inflow{file: lostFile{}, room: window}
	}
	return nil, err
}

// start begins to copy.
func (s *stream) start() {
	if s.out != nil {
		go s.runOut()
	}
	if s.in != nil {
		go s.runIn()
	}
	if s.lent != nil {
		go s.lent.follow(s)
	}
}

// discard closes the files of a stream that was never started.
func (s *stream) discard() {
	s.carrier.mu.Lock()
	if s.out != nil {
		s.out.file.close()
		s.out.over = true
	}
	if s.in != nil {
		s.in.file.close()
		s.in.over, s.in.ended = true, true
	}
	s.end()
	s.carrier.mu.Unlock()
	if s.lent != nil {
		s.lent.follow(s) // which has its end to follow
	}
}

// isOver reports whether nothing goes either way any more. The caller holds mu.
func (s *stream) isOver() bool {
	return (s.out == nil || s.out.over) && (s.in == nil || s.in.over && s.in.ended)
}

// end forgets the stream if it is over. The caller holds mu.
func (s *stream) end() {
	s.changed.Broadcast()
	if !s.isOver() {
		return
	}
	s.carrier.remove(s)
	if s.lent != nil {
		s.lent.end()
	}
}

// stop has the stream end: abort says that what has come is not wanted either. The caller
// holds mu.
func (s *stream) stop(abort bool) {
	s.stopOut()
	if s.in != nil {
		s.in.ended, s.in.aborted = true, s.in.aborted || abort
		s.in.file.kick()
		s.end()
	}
}

func (s *stream) stopOut() {
	if s.out != nil {
		s.out.stopped = true
		s.out.file.kick()
		s.changed.Broadcast()
	}
}

// take does what a frame says, and returns false if it may not say so. The caller holds mu.
func (s *stream) take(f frame, data []byte) bool {
	in, out := s.in, s.out
	switch f.kind {
	case frameData:
		if in == nil || in.ended || len(data) > in.room {
			return false
		}
		in.room -= len(data)
		in.append(data)
	case frameEnd:
		if in == nil || in.ended {
			return false
		}
		in.ended, in.shutdown = true, f.value == 1
		in.file.kick()
		if s.made { // who has the terminal there has gone
			s.stopOut()
		}
		s.end()
	case frameCredit:
		if out == nil || int64(f.value) > int64(window-out.credit) {
			return false
		}
		out.credit += int(f.value)
		s.changed.Broadcast()
	case frameReset:
		if out == nil {
			return false
		}
		s.stopOut()
	case frameSize:
		if !s.made {
			return false
		}
		if !in.over {
			in.file.resize(f.value)
		}
	}
	return true
}

// append takes what has come. The caller holds mu.
func (in *inflow) append(data []byte) {
	if in.over || in.refused {
		return
	}
	if in.from == len(in.buf) {
		in.file.kick() // it waits for more
	}
	if in.from > 0 && len(in.buf)+len(data) > cap(in.buf) {
		// Not in place, where it is being written from. The spare buffer is not any more, since some
		// of the one that took its place is written.
		in.buf, in.spare, in.from = append(in.spare[:0], in.buf[in.from:]...), in.buf, 0
	}
	in.buf = append(in.buf, data...)
	in.received += uint64(len(data))
}

// tell sends the peer a frame of the stream. Where this fails, the channel ends, and with it
// the stream.
func (s *stream) tell(kind kind, value uint32) {
	var b [frameLen]byte
	s.frame(kind, value).put(b[:])
	_ = s.carrier.writeBytes(b[:], nil)
}

func (s *stream) frame(kind kind, value uint32) frame {
	return frame{kind: kind, theirs: s.id.opener == peers, number: s.id.number, value: value}
}

// buffers are for frames of data.
var buffers = sync.Pool{New: func() any { return new([frameLen + maxData]byte) }}

// runOut is an outflow's goroutine.
func (s *stream) runOut() {
	out, mu := s.out, &s.carrier.mu
	var shut uint32
	for {
		mu.Lock()
		for out.credit == 0 && !out.stopped {
			s.changed.Wait()
		}
		room, stopped, draining := min(out.credit, maxData), out.stopped, out.draining > 0
		mu.Unlock()
		if stopped {
			break
		}
		if !draining {
			ready, err := out.file.await(unix.POLLIN)
			if err != nil {
				break
			}
			if !ready {
				continue
			}
		}
		if !s.sendSome(room, draining) {
			if out.file.isShut() {
				shut = 1
			}
			break
		}
	}
	s.tell(frameEnd, shut)
	out.file.close()
	mu.Lock()
	defer mu.Unlock()
	out.over = true
	s.end()
}

// sendSome reads what there is, at most room bytes, and sends it. It returns false at the end
// of the file.
func (s *stream) sendSome(room int, draining bool) bool {
	buf := buffers.Get().(*[frameLen + maxData]byte)
	defer buffers.Put(buf)
	n, err := s.out.file.read(buf[frameLen : frameLen+room])
	empty := errors.Is(err, errWouldBlock)
	if n == 0 && !empty {
		return false // its end, or a failure, which is one to a reader of a pipe
	}
	s.carrier.mu.Lock()
	s.out.credit -= n // before the peer can give it back
	s.carrier.mu.Unlock()
	if n > 0 {
		s.frame(frameData, uint32(n)).put(buf[:])
		if s.carrier.writeBytes(buf[:frameLen+n], nil) != nil {
			return false
		}
	}
	if draining {
		s.carrier.mu.Lock()
		defer s.carrier.mu.Unlock()
		if s.out.draining = max(s.out.draining-n, 0); empty {
			s.out.draining = 0
		}
		s.changed.Broadcast()
	}
	return true
}

// runIn is an inflow's goroutine.
func (s *stream) runIn() {
	in, mu := s.in, &s.carrier.mu
	for {
		mu.Lock()
		chunk, ended := in.buf[in.from:], in.ended
		done := in.aborted || in.refused || ended && len(chunk) == 0
		mu.Unlock()
		if done {
			break
		}
		var events int16
		if len(chunk) > 0 {
			events = unix.POLLOUT
		}
		ready, err := in.file.await(events)
		if ready && len(chunk) > 0 {
			var n int
			if n, err = in.file.write(chunk); errors.Is(err, errWouldBlock) {
				err = nil
			}
			s.wrote(n)
		}
		if err != nil || ready && len(chunk) == 0 { // nobody is there who would read it
			s.refuse()
		}
	}
	mu.Lock()
	if in.shutdown || s.id.opener == peers {
		in.file.endWriting()
	}
	in.file.close()
	in.over, in.buf, in.spare = true, nil, nil
	s.end()
	mu.Unlock()
}

// wrote counts bytes that were written, and tells the peer that there is room.
func (s *stream) wrote(n int) {
	in := s.in
	s.carrier.mu.Lock()
	in.from += n
	in.written += uint64(n)
	in.owed += n
	if in.from == len(in.buf) {
		in.buf, in.from = in.buf[:0], 0
	}
	grant := 0
	if in.owed >= window/2 && !in.ended {
		grant, in.owed = in.owed, 0
		in.room += grant
	}
	s.changed.Broadcast()
	s.carrier.mu.Unlock()
	if grant > 0 {
		s.tell(frameCredit, uint32(grant))
	}
}

// refuse tells the peer, once, that no more is taken.
func (s *stream) refuse() {
	s.carrier.mu.Lock()
	again := s.in.refused
	s.in.refused = true
	s.carrier.mu.Unlock()
	if !again {
		s.tell(frameReset, 0)
	}
}

// await waits until done returns true, which is called with mu held, or ctx ends.
func (s *stream) await(ctx context.Context, done func() bool) {
	mu := &s.carrier.mu
	stop := context.AfterFunc(ctx, func() {
		mu.Lock()
		defer mu.Unlock()
		s.changed.Broadcast()
	})
	defer stop()
	mu.Lock()
	defer mu.Unlock()
	for !done() && ctx.Err() == nil {
		s.changed.Wait()
	}
}

// settle waits, before a request is answered, until the peer was sent what had been written to
// its files by then, and was told of those that nobody reads any more.
func settle(ctx context.Context, streams []*stream) {
	for _, s := range streams {
		if s.in == nil {
			continue
		}
		s.carrier.mu.Lock()
		gone := !s.in.over && s.in.file.hungUp()
		s.carrier.mu.Unlock()
		if gone {
			s.refuse()
		}
	}
	for _, s := range streams {
		if s.out == nil {
			continue
		}
		s.carrier.mu.Lock()
		s.out.draining = mostHeld
		s.out.file.kick()
		s.carrier.mu.Unlock()
		s.await(ctx, func() bool { return s.out.draining == 0 || s.out.over })
	}
}

// flush waits, when a request was answered, until what had come for its files is written, and
// those that are read no more at the peer are not read here.
func flush(ctx context.Context, streams []*stream) {
	for _, s := range streams {
		if s.in != nil {
			s.carrier.mu.Lock()
			all := s.in.received
			s.carrier.mu.Unlock()
			s.await(ctx, func() bool { return s.in.over || s.in.written >= all })
		}
		if s.out != nil {
			s.await(ctx, func() bool { return !s.out.stopped || s.out.over })
		}
	}
}

// abandon has no more be read of the files of a request that the caller gave up.
func abandon(streams []*stream) {
	for _, s := range streams {
		s.carrier.mu.Lock()
		s.stopOut()
		s.carrier.mu.Unlock()
	}
}
