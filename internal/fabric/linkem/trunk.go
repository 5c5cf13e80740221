package linkem

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
	"unsafe"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/frame"
	"github.com/ndklab/ndklab/internal/fabric/trunk"
	"golang.org/x/sys/unix"
)

// A peer is the engine of another host, which has the other ends of some links (package trunk). The engine where a packet
// enters such a link decides on it and ships its frame at once; the one where it leaves has it in a line, and
// sends it when its time has come. It belongs to the loop's thread.
type peer struct {
	name    string
	stream  int // descriptors: of a stream for frames
	pings   int // and of datagrams for pings
	links   map[uint32]*link
	reader  *trunk.Reader
	offset  trunk.Offset
	agreed  trunk.Agreed
	answers int // to pings

	heads   []byte      // of messages that are shipped, and short frames
	pieces  []piece     // of the messages, in order
	runs    []trunk.Run // of the frame at hand
	vectors []unix.Iovec
	pending []byte // what the stream has no room for, from written on
	written int    // bytes of pending that it had
	asked   trunk.Asked
	blocked bool // something is pending, and the poller tells when there is room

	met   chan struct{} // closed when the clocks are known
	ended chan struct{} // closed when the peer is gone, for reason
	// reason is set before ended is closed.
	reason error
	counts TrunkCounts
}

// A piece of a message is a part of heads, or bytes.
type piece struct {
	begin, end int
	bytes      []byte // not nil: instead
}

// TrunkCounts says how a trunk fares.
type TrunkCounts struct {
	Frames  uint64        `json:"frames"`   // shipped
	Bytes   uint64        `json:"bytes"`    // of those, with what is decided on them
	Pending int           `json:"pending"`  // bytes: the most that has waited at once
	Strays  uint64        `json:"strays"`   // frames that came for links that are not attached
	Ahead   time.Duration `json:"ahead_ns"` // of the peer's clock
	Wrong   time.Duration `json:"wrong_ns"` // by how much Ahead may be wrong, either way
	Trip    time.Duration `json:"trip_ns"`  // of a ping, there and back
	Wall    time.Duration `json:"wall_ns"`  // by how much the wall clock of the engine's host, since 1970, is ahead of the engine's clock
}

const (
	// maxPending bounds what waits for a stream, bytes. Beyond it frames are lost.
	maxPending = 64 << 20
	// trunkRead bounds what is read at once.
	trunkRead = 256 << 10
	// readsAtOnce bounds the reads of a stream between two waits.
	readsAtOnce = 4
	// pingsAtOnce bounds the pings that are taken between two waits.
	pingsAtOnce = 64
	// firstPings is the number of pings, one after the other, after which the clocks are known well enough to begin.
	firstPings = 16
	// maxVectors is UIO_MAXIOV of Linux.
	maxVectors = 1024
	// unsentLow is the number of unsent bytes in the socket below which it takes more: what is late waits here, where it is counted.
	unsentLow = 128 << 10
)

// A trunks is the engine's peers. It belongs to the loop's thread.
type trunks struct {
	*epoch
	poller  *poller
	ingress *ingress
	egress  *egress
	byName  map[string]*peer
	byFD    map[int32]*peer
	timer   int // descriptor of the timer of pings; -1: there is no peer
	packet  [trunk.PingLen + 1]byte
	sent    []byte        // scratch
	own     []frame.Frame // of the runs of the frame at hand
}

// errFar is the error of a request that makes no sense for a link between hosts.
func errFar(k *link) error {
	return control.Errorf(control.Usage, "link %s is between hosts, and the kernel does not carry it", k.name)
}

// add takes the sockets of a peer.
func (t *trunks) add(name string, stream, pings int) (*peer, error) {
	if t.byName[name] != nil {
		return nil, control.Errorf(control.Usage, "the engine has a trunk to %s already", name)
	}
	if t.timer < 0 {
		if err := t.startTimer(); err != nil {
			return nil, err
		}
	}
	q := &peer{name: name, stream: stream, pings: pings, links: map[uint32]*link{}, reader: trunk.NewReader(trunkRead), met: make(chan struct{}), ended: make(chan struct{})}
	for _, fd := range []int{stream, pings} {
		if err := t.poller.watch(fd); err != nil {
			return nil, err // closing the sockets undoes what there is
		}
	}
	t.byFD[int32(stream)], t.byFD[int32(pings)] = q, q
	t.byName[name] = q
	t.ping(q)
	return q, nil
}

// startTimer has the poller tell when pings are due.
func (t *trunks) startTimer() (err error) {
	if t.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK); err != nil {
		return fmt.Errorf("timerfd: %w", err)
	}
	every := unix.NsecToTimespec(int64(trunk.PingInterval))
	if err := unix.TimerfdSettime(t.timer, 0, &unix.ItimerSpec{Interval: every, Value: every}, nil); err != nil {
		return fmt.Errorf("timerfd: %w", err)
	}
	return t.poller.watch(t.timer)
}

// take handles what the poller tells of a descriptor, if it is of a trunk.
func (t *trunks) take(e *unix.EpollEvent) {
	if int(e.Fd) == t.timer && t.timer >= 0 {
		var count [8]byte
		_, _ = unix.Read(t.timer, count[:]) // resets it
		for _, q := range t.byName {
			t.ping(q)
		}
		return
	}
	q := t.byFD[e.Fd]
	if q == nil {
		return
	}
	if int(e.Fd) == q.pings {
		t.takePings(q)
		return
	}
	if e.Events&unix.EPOLLOUT != 0 {
		t.end(q, q.writePending(t.poller))
	}
	if q.reason == nil && e.Events&^unix.EPOLLOUT != 0 {
		t.end(q, t.receive(q))
	}
}

// end ends a trunk, unless err is nil. Its links lose what they are given from then on.
func (t *trunks) end(q *peer, err error) {
	if err == nil || q.reason != nil {
		return
	}
	q.reason = fmt.Errorf("trunk to %s: %w", q.name, err)
	for _, fd := range []int{q.stream, q.pings} {
		delete(t.byFD, int32(fd))
		_ = unix.EpollCtl(t.poller.fd, unix.EPOLL_CTL_DEL, fd, nil) // closing does the same
		unix.Close(fd)
	}
	q.pending, q.written = nil, 0
	close(q.ended)
}

// ping asks a peer for the time. A datagram that cannot be sent now is as good as lost.
func (t *trunks) ping(q *peer) {
	if q.reason == nil {
		p := trunk.Ping{Sent: t.now()}
		q.asked.Ask(p.Sent)
		t.tell(q, &p)
	}
}

func (t *trunks) tell(q *peer, p *trunk.Ping) {
	q.agreed.Tell(p)
	t.sent = p.Append(t.sent[:0])
	_, _, _ = unix.RawSyscall6(unix.SYS_SENDTO, uintptr(q.pings), uintptr(unsafe.Pointer(&t.sent[0])), uintptr(len(t.sent)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
}

// takePings answers questions, and learns from answers to those that were asked.
func (t *trunks) takePings(q *peer) {
	for range pingsAtOnce {
		n, errno := readNow(q.pings, t.packet[:])
		now := t.now()
		if errno == unix.ECONNREFUSED || errno == unix.EINTR { // the other end was not there for an earlier one
			continue
		}
		if errno != 0 {
			return
		}
		p, ok := trunk.ParsePing(t.packet[:n])
		switch {
		case !ok || p.Answer && !q.asked.Answered(p.Sent):
		case p.Answer:
			q.agreed.Hear(&p)
			q.offset.Add(p, now)
			q.agreed.Take(&q.offset, now, q.answers < firstPings)
			if q.answers++; q.answers < firstPings {
				t.ping(q)
			} else if q.answers == firstPings {
				close(q.met)
			}
		default:
			q.agreed.Hear(&p)
			t.tell(q, &trunk.Ping{Answer: true, Sent: p.Sent, Received: now, Answered: t.now()})
		}
	}
}

// readNow reads without blocking, and without telling the scheduler.
func readNow(fd int, b []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// ship has a frame cross that passes a line, with what was decided on its packets, in as many messages as their runs take. Frames
// in staging buffers stay there until flush.
func (q *peer) ship(n *line, f *frame.Frame, runs []run, arrived time.Duration, memory *pool) {
	for some := range slices.Chunk(runs, trunk.MaxRuns) {
		q.append(n, f, some, arrived)
	}
	for i := range runs {
		if h := runs[i].held; h != nil && (i+1 == len(runs) || runs[i+1].held != h) { // those that leave twice have one
			memory.release(n, h)
		}
	}
}

// append appends a message to what is shipped.
func (q *peer) append(n *line, f *frame.Frame, runs []run, arrived time.Duration) {
	message := trunk.Frame{Link: n.link.number, Direction: n.direction, Arrived: arrived, Runs: q.runs[:0]}
	packets := uint64(0)
	for i := range runs {
		r := &runs[i]
		one := trunk.Run{Departs: r.departs, Queued: r.queued, First: int(r.first), Count: int(r.count), Mark: r.mark}
		if r.held != nil {
			one.Own = r.held.frame.Bytes()
		} else {
			message.Bytes = f.Bytes()
		}
		message.Runs = append(message.Runs, one)
		packets += uint64(r.count)
	}
	q.runs = message.Runs[:0]
	if q.takes(n, packets) {
		begin := len(q.heads)
		q.heads = trunk.AppendHead(q.heads, &message)
		q.pieces = append(q.pieces, piece{begin: begin, end: len(q.heads)})
		if len(message.Bytes) > 0 {
			q.pieces = append(q.pieces, piece{bytes: message.Bytes})
		}
		begin = len(q.heads)
		if q.heads = trunk.AppendOwn(q.heads, &message); len(q.heads) > begin {
			q.pieces = append(q.pieces, piece{begin: begin, end: len(q.heads)})
		}
	}
}

// waits returns how many bytes wait for the stream.
func (q *peer) waits() int { return len(q.pending) - q.written }

// takes reports whether a frame may be shipped. If not, its packets are lost.
func (q *peer) takes(n *line, packets uint64) bool {
	switch {
	case q.reason != nil:
		n.stats.Counts.LostDown += packets
	case q.waits() > maxPending:
		n.stats.Counts.LostOverrun += packets
	default:
		q.counts.Frames++
		return true
	}
	return false
}

// flush writes what was shipped since it was called last.
func (t *trunks) flush(q *peer) {
	if q == nil || len(q.pieces) == 0 {
		return
	}
	q.vectors = q.vectors[:0]
	for i := range q.pieces {
		b := q.pieces[i].bytes
		if b == nil {
			b = q.heads[q.pieces[i].begin:q.pieces[i].end]
		}
		v := unix.Iovec{Base: &b[0]}
		v.SetLen(len(b))
		q.vectors = append(q.vectors, v)
		q.counts.Bytes += uint64(len(b))
	}
	left := q.vectors
	var err error
	if len(q.pending) == 0 {
		left, err = q.write(left)
	}
	for _, v := range left {
		q.pending = append(q.pending, unsafe.Slice(v.Base, int(v.Len))...)
	}
	q.counts.Pending = max(q.counts.Pending, q.waits())
	q.pieces, q.heads = q.pieces[:0], q.heads[:0]
	if err == nil && len(q.pending) > 0 && !q.blocked {
		err = q.waitForRoom(t.poller, true)
	}
	t.end(q, err)
}

// write writes vectors, and returns those that the stream has no room for.
func (q *peer) write(v []unix.Iovec) (left []unix.Iovec, err error) {
	for len(v) > 0 {
		header := unix.Msghdr{Iov: &v[0]}
		header.SetIovlen(min(len(v), maxVectors))
		n, _, errno := unix.RawSyscall(unix.SYS_SENDMSG, uintptr(q.stream), uintptr(unsafe.Pointer(&header)), unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
		switch errno {
		case 0:
			v = advance(v, int(n))
		case unix.EINTR:
		case unix.EAGAIN:
			return v, nil
		default:
			return nil, errno
		}
	}
	return nil, nil
}

// advance takes the first n bytes off vectors.
func advance(v []unix.Iovec, n int) []unix.Iovec {
	for len(v) > 0 && uint64(n) >= uint64(v[0].Len) {
		n -= int(v[0].Len)
		v = v[1:]
	}
	if n > 0 {
		v[0].Base = (*byte)(unsafe.Add(unsafe.Pointer(v[0].Base), n))
		v[0].SetLen(int(v[0].Len) - n)
	}
	return v
}

// writePending writes what waits for the stream.
func (q *peer) writePending(w *poller) error {
	if waits := q.pending[q.written:]; len(waits) > 0 {
		v := unix.Iovec{Base: &waits[0]}
		v.SetLen(len(waits))
		left, err := q.write([]unix.Iovec{v})
		if err != nil {
			return err
		}
		rest := 0
		if len(left) > 0 {
			rest = int(left[0].Len)
		}
		q.written = len(q.pending) - rest
	}
	// The bytes that were written are let go when they are more than the rest, so that each byte is moved once, about.
	if q.written > q.waits() {
		q.pending, q.written = q.pending[:copy(q.pending, q.pending[q.written:])], 0
	}
	if q.waits() > 0 {
		return nil
	}
	return q.waitForRoom(w, false)
}

// waitForRoom has the poller tell when the stream has room, or no longer.
func (q *peer) waitForRoom(w *poller, wait bool) error {
	events := uint32(unix.EPOLLIN)
	if wait {
		events |= unix.EPOLLOUT
	}
	if err := unix.EpollCtl(w.fd, unix.EPOLL_CTL_MOD, q.stream, &unix.EpollEvent{Events: events, Fd: int32(q.stream)}); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	q.blocked = wait
	return nil
}

// receive takes what has come over the stream.
func (t *trunks) receive(q *peer) error {
	for range readsAtOnce {
		room := q.reader.Room()
		room = room[:min(len(room), trunkRead)]
		n, errno := readNow(q.stream, room)
		switch {
		case errno == unix.EAGAIN:
			return nil
		case errno == unix.EINTR:
			continue
		case errno != 0:
			return errno
		case n == 0:
			return io.EOF
		}
		q.reader.Add(n)
		for {
			f, err := q.reader.Next()
			if err != nil {
				return err
			}
			if f == nil {
				break
			}
			if err := t.enter(q, f); err != nil {
				return err
			}
		}
		if n < len(room) {
			return nil
		}
	}
	return nil
}

// errRuns is the error of a peer that has packets leave which a frame does not have.
var errRuns = errors.New("a frame without the packets that are to leave")

// enter puts a frame that has crossed into its line.
func (t *trunks) enter(q *peer, f *trunk.Frame) error {
	whole, err := t.check(f)
	if err != nil {
		return err
	}
	k := q.links[f.Link]
	if k == nil || k.state != started || k.lines[f.Direction].to == nil || !q.offset.Known() {
		q.counts.Strays++
		return nil
	}
	n := k.lines[f.Direction]
	t.ingress.stream.bytes += len(f.Bytes)
	ahead := q.agreed.Ahead()
	arrived := min(f.Arrived-ahead, t.now())
	var held *heldFrame
	runs := t.ingress.runs[:0]
	for i := range f.Runs {
		r := &f.Runs[i]
		x := run{departs: r.Departs - ahead, queued: r.Queued, first: int32(r.First), count: int32(r.Count), mark: r.Mark}
		if r.Own != nil {
			if x.held = t.hold(n, t.own[i], arrived); x.held == nil {
				n.stats.Counts.LostOverrun += uint64(r.Count)
				continue
			}
		} else if held == nil {
			held = t.hold(n, whole, arrived)
		}
		runs = append(runs, x)
	}
	t.ingress.runs = runs[:0]
	t.egress.enqueue(n, runs, held)
	return nil
}

// check parses the frames that crossed, and returns the one that is whole; those that runs have of their own are
// in t.own. It makes sure that the packets are there which are to leave.
func (t *trunks) check(f *trunk.Frame) (whole frame.Frame, err error) {
	if len(f.Bytes) > 0 {
		if whole, err = frame.Parse(f.Bytes); err != nil {
			return whole, err
		}
	}
	t.own = t.own[:0]
	for i := range f.Runs {
		r, own := &f.Runs[i], whole
		if r.Own != nil {
			if own, err = frame.Parse(r.Own); err != nil {
				return whole, err
			}
		}
		t.own = append(t.own, own)
		if r.Own == nil && len(f.Bytes) == 0 || r.Count == 0 || r.First+r.Count > own.Segments() {
			return whole, errRuns
		}
	}
	return whole, nil
}

// hold keeps a frame that is in a reader. It returns nil when there is no memory left.
func (t *trunks) hold(n *line, f frame.Frame, arrived time.Duration) *heldFrame {
	b, room := t.egress.memory.room(n, len(f.Bytes()))
	if b == nil {
		return nil
	}
	f.Move(room)
	return t.egress.memory.hold(b, f, arrived)
}

// close closes the sockets. The loop has ended.
func (t *trunks) close() {
	for _, q := range t.byName {
		t.end(q, errEnded)
	}
	if t.timer >= 0 {
		unix.Close(t.timer)
	}
}
