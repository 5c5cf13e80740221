package control

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// streams is the carrier over a stream of bytes such as TCP. Files are streams of their own in
// it, numbered by who sends them. Each flow of a stream has credit: its sender has no more
// under way than the receiver has room for, so that a file that nobody reads holds up no
// other, and the reader of the connection never waits.
type streams struct {
	conn    net.Conn
	reader  *bufio.Reader
	writing sync.Mutex // held while a frame is written

	scratch [maxData]byte // the reader's

	mu    sync.Mutex // guards what follows, and what changes of streams
	last  [2]uint32  // the highest number of a stream that was opened: by us, by the peer
	count [2]int     // of those in live
	live  map[streamID]*stream
	over  bool // no frame comes any more
	shut  bool // by our Close: files take no more either
}

type streamID struct {
	number uint32
	opener opener
}

// An opener is an end of the channel, which opened a stream.
type opener uint8

const (
	ours opener = iota
	peers
)

// maxStreams bounds the streams that one end has opened and that are not over. Room for what
// a peer sends is taken as it comes, at most window for each.
const maxStreams = 1 << 14

// window is the number of bytes of a flow that may be under way.
const window = 256 << 10

func newStreams(conn net.Conn) *streams {
	return &streams{conn: conn, reader: bufio.NewReaderSize(conn, maxData+frameLen), live: map[streamID]*stream{}}
}

func (c *streams) peer() (*unix.Ucred, error) {
	return nil, fmt.Errorf("peer credentials: %s at the other end of a stream is no process of this machine", c.conn.RemoteAddr())
}

// close does without what TLS says at its end, which may have to wait.
func (c *streams) close() {
	c.mu.Lock()
	c.shut = true
	c.mu.Unlock()
	c.end()
}

// end has streams end: what has come is still written to the files, unless the channel was
// closed here.
func (c *streams) end() {
	conn := c.conn
	if over, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = over.NetConn()
	}
	conn.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	for _, s := range c.live {
		s.stop(c.shut)
	}
}

// writeBytes writes a whole frame, of which rest is the end.
func (c *streams) writeBytes(b, rest []byte) (err error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	if len(rest) == 0 {
		_, err = c.conn.Write(b)
	} else {
		_, err = (&net.Buffers{b, rest}).WriteTo(c.conn)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrClosed, err) // the reader takes what the peer said last
	}
	return nil
}

func (c *streams) write(m *message, buf []byte, fds []int) error {
	opened, table, err := c.open(fds, m.lent)
	if err != nil {
		return err
	}
	head := make([]byte, frameLen, frameLen+maxTable)
	head = appendTable(head, table)
	text := buf[headLen:]
	frame{kind: frameMessage, value: uint32(len(head) - frameLen + len(text))}.put(head)
	err = c.writeBytes(head, text)
	if err != nil {
		c.mu.Lock()
		for _, s := range opened {
			s.stop(true)
		}
		c.mu.Unlock()
	}
	for _, s := range opened {
		s.start()
	}
	m.streams = opened
	return err
}

// open makes streams of descriptors, which it takes over. Descriptors for the same file have
// one, so that what is written to both stays in order.
func (c *streams) open(fds []int, lent bool) (opened []*stream, table []entry, err error) {
	defer closeAll(fds)
	defer func() {
		if err != nil {
			err = fmt.Errorf("file to send: %w", err)
			for _, s := range opened {
				s.discard()
			}
		}
	}()
	var known []identity
	for _, fd := range fds {
		is, err := identify(fd)
		if err != nil {
			return opened, nil, err
		}
		if i := is.among(known); i >= 0 {
			known = append(known, is)
			table = append(table, table[i])
			continue
		}
		e := entry{passage: is.passage}
		s := &stream{carrier: c}
		if lent && is.passage == both {
			if s.lent, err = lendTerminal(fd); err != nil {
				return opened, nil, err
			}
			if s.lent != nil {
				e.passage, e.state = lentTerm, s.lent.state
			}
		}
		opened = append(opened, s)
		if err := s.flow(fd, e.passage != inward, e.passage != outward); err != nil {
			return opened, nil, err
		}
		if e.number, err = c.add(s); err != nil {
			return opened, nil, err
		}
		known = append(known, is)
		table = append(table, e)
	}
	return opened, table, nil
}

// add numbers a stream that is opened here.
func (c *streams) add(s *stream) (uint32, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return 0, ErrClosed
	}
	if c.count[ours] == maxStreams {
		return 0, fmt.Errorf("%d files are open at the peer, at most so many can be", maxStreams)
	}
	c.register(s, streamID{c.last[ours] + 1, ours})
	return s.id.number, nil
}

// register has frames reach a stream. The caller holds mu.
func (c *streams) register(s *stream, id streamID) {
	s.id = id
	c.last[id.opener] = id.number
	c.count[id.opener]++
	c.live[id] = s
}

// remove is register's opposite.
func (c *streams) remove(s *stream) {
	if c.live[s.id] == s {
		delete(c.live, s.id)
		c.count[s.id.opener]--
	}
}

func (c *streams) read(longest int) (*message, error) {
	for {
		f, err := readFrame(c.reader, longest+maxTable)
		if err != nil {
			return nil, err
		}
		if f.kind == frameMessage {
			body := make([]byte, f.value)
			if _, err := io.ReadFull(c.reader, body); err != nil {
				return nil, err
			}
			return c.parse(body, longest)
		}
		var data []byte
		if f.kind == frameData {
			data = c.scratch[:f.value]
			if _, err := io.ReadFull(c.reader, data); err != nil {
				return nil, err
			}
		}
		if err := c.take(f, data); err != nil {
			return nil, err
		}
	}
}

// take hands a frame to its stream. One for a stream that is over was under way when that
// ended here.
func (c *streams) take(f frame, data []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := streamID{f.number, peers}
	if f.theirs {
		id.opener = ours
	}
	if f.number == 0 || f.number > c.last[id.opener] {
		return fmt.Errorf("%w: of stream %d, which nobody has opened", errMalformed, f.number)
	}
	s := c.live[id]
	if s == nil {
		return nil
	}
	if !s.take(f, data) {
		return fmt.Errorf("%w: kind %d of stream %d, which may not have it", errMalformed, f.kind, f.number)
	}
	return nil
}

// parse makes a message of a frame's body, and the files that it has.
func (c *streams) parse(body []byte, longest int) (*message, error) {
	table, text, err := parseTable(body)
	if err != nil {
		return nil, err
	}
	if len(text) > longest {
		return nil, errTooLong
	}
	m := new(message)
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("malformed message: %w", err)
	}
	if err := c.accept(m, table); err != nil {
		closeFiles(m.files)
		return nil, err
	}
	return m, nil
}

// accept makes the files of a message that the peer sent.
func (c *streams) accept(m *message, table []entry) error {
	made := map[uint32]int{} // by number: where in m.files
	for i := range table {
		e := &table[i]
		if at, ok := made[e.number]; ok { // the same file again
			again, err := duplicateFile(m.files[at])
			if err != nil {
				m.failed = err
			}
			m.files = append(m.files, again)
			continue
		}
		s := &stream{carrier: c}
		f, err := s.make(e)
		if err != nil {
			m.failed = fmt.Errorf("file %d of %s: %w", i+1, m.Method, err) // which is the answer
		}
		made[e.number] = i
		m.files, m.streams = append(m.files, f), append(m.streams, s)
		c.mu.Lock()
		ok := e.number > c.last[peers] && c.count[peers] < 2*maxStreams && !c.over
		if ok {
			c.register(s, streamID{e.number, peers})
		}
		c.mu.Unlock()
		if !ok {
			s.discard()
			return fmt.Errorf("%w: stream %d cannot be opened", errMalformed, e.number)
		}
		s.start()
	}
	return nil
}

// An identity tells whether descriptors are for the same file.
type identity struct {
	device, inode uint64
	flags         int
	passage       passage
	alone         bool // each open of it has a place of its own, from which it is read
}

func identify(fd int) (identity, error) {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return identity{}, err
	}
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return identity{}, err
	}
	is := identity{device: uint64(stat.Dev), inode: stat.Ino, flags: flags}
	switch flags & unix.O_ACCMODE {
	case unix.O_RDONLY:
		is.passage, is.alone = outward, stat.Mode&unix.S_IFMT == unix.S_IFREG
	case unix.O_WRONLY:
		is.passage = inward
	default:
		is.passage = both
	}
	return is, nil
}

// among returns where in known the same file is; -1 if it is not.
func (is identity) among(known []identity) int {
	if is.alone {
		return -1
	}
	return slices.Index(known, is)
}
