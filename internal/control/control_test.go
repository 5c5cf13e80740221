package control

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// pair is a channel within this process, closed with the test.
func pair(t *testing.T, here, there Handler) (*Conn, *Conn) {
	t.Helper()
	a, file, err := Pair(here)
	if err != nil {
		t.Fatal(err)
	}
	b, err := FromFile(file, there)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// A pairing is a kind of channel within this process, as pair makes.
type pairing func(t *testing.T, here, there Handler) (*Conn, *Conn)

// TestCarriers has channels do over each carrier what they do over any.
func TestCarriers(t *testing.T) {
	for name, pair := range map[string]pairing{"unix": pair, "tcp": tcpPair, "tls": tlsPair} {
		t.Run(name, func(t *testing.T) {
			for name, test := range map[string]func(*testing.T, pairing){
				"CallBothWaysAtOnce": testCallBothWaysAtOnce,
				"ErrorsCross":        testErrorsCross,
				"Cancel":             testCancel,
				"PeerDeath":          testPeerDeath,
				"NoticesInOrder":     testNoticesInOrder,
				"NoticeToNobody":     testNoticeToNobody,
				"Files":              testFiles,
				"FileStaysAsItIs":    testFileStaysAsItIs,
				"FilesRefused":       testFilesRefused,
			} {
				t.Run(name, func(t *testing.T) { test(t, pair) })
			}
		})
	}
}

// rawPair is a channel whose other end is a bare socket.
func rawPair(t *testing.T, here Handler) (*Conn, *net.UnixConn) {
	t.Helper()
	a, file, err := Pair(here)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	raw, err := net.FileConn(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); raw.Close() })
	return a, raw.(*net.UnixConn)
}

func onWire(body string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// readMessage reads the next message from the bare end.
func readMessage(t *testing.T, raw *net.UnixConn) *message {
	t.Helper()
	var head [4]byte
	if _, err := io.ReadFull(raw, head[:]); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, binary.BigEndian.Uint32(head[:]))
	if _, err := io.ReadFull(raw, body); err != nil {
		t.Fatal(err)
	}
	m := new(message)
	if err := json.Unmarshal(body, m); err != nil {
		t.Fatal(err)
	}
	return m
}

// double answers "double" with twice its parameter.
func double(_ context.Context, r *Request) (any, error) {
	if r.Method != "double" {
		return nil, fmt.Errorf("no %s: %w", r.Method, Errorf(Unable, "not here"))
	}
	var n int
	if err := r.decode(&n); err != nil {
		return nil, err
	}
	return 2 * n, nil
}

func testCallBothWaysAtOnce(t *testing.T, pair pairing) {
	a, b := pair(t, double, double)
	const n = 100
	errs := make(chan error, 2*n)
	for i := range n {
		for _, c := range []*Conn{a, b} {
			go func() {
				var got int
				err := c.call(t.Context(), "double", i, &got)
				if err == nil && got != 2*i {
					err = fmt.Errorf("twice %d is %d", i, got)
				}
				errs <- err
			}()
		}
	}
	for range 2 * n {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

func testErrorsCross(t *testing.T, pair pairing) {
	a, b := pair(t, nil, double)
	for _, test := range []struct {
		conn   *Conn
		method string
		params any
		code   Code
		text   string
	}{
		{a, "halve", 1, Unable, "no halve: not here"},
		{a, "double", "x", Usage, "double: parameters: json: cannot unmarshal string into Go value of type int"},
		{b, "double", 1, Usage, `unknown request "double"`}, // no handler
	} {
		err := test.conn.call(t.Context(), test.method, test.params, nil)
		var e *Error
		if !errors.As(err, &e) || e.Code != test.code || e.Message != test.text {
			t.Errorf("%s: got %#v, want %s %q", test.method, err, test.code, test.text)
		}
	}
	var text string
	if err := a.call(t.Context(), "double", 1, &text); err == nil || !strings.HasPrefix(err.Error(), "double: answer: ") {
		t.Errorf("an answer of the wrong type: %v", err)
	}
	if err := a.call(t.Context(), "double", 1, nil); err != nil {
		t.Errorf("an answer that is not wanted: %v", err)
	}
	if err := a.call(t.Context(), "double", make(chan int), nil); err == nil {
		t.Error("parameters that cannot be sent were")
	}
	if err := a.notify("x", make(chan int)); err == nil {
		t.Error("a notice that cannot be sent was")
	}
}

func TestResultThatCannotBeSent(t *testing.T) {
	for name, result := range map[string]any{
		"no JSON":  make(chan int),
		"too long": strings.Repeat("x", MaxMessage),
	} {
		t.Run(name, func(t *testing.T) {
			a, _ := pair(t, nil, func(context.Context, *Request) (any, error) { return result, nil })
			var e *Error
			if err := a.call(t.Context(), "x", nil, nil); !errors.As(err, &e) || e.Code != Failed {
				t.Errorf("got %v", err)
			}
		})
	}
}

func testCancel(t *testing.T, pair pairing) {
	serving := make(chan struct{})
	given := make(chan error, 1)
	a, _ := pair(t, nil, func(ctx context.Context, r *Request) (any, error) {
		if r.Method == "double" {
			return double(ctx, r)
		}
		close(serving)
		<-ctx.Done()
		given <- ctx.Err()
		return nil, nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-serving
		cancel()
	}()
	if err := a.call(ctx, "wait", nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("the caller got %v", err)
	}
	if err := <-given; !errors.Is(err, context.Canceled) {
		t.Errorf("the handler's context: %v", err)
	}
	var got int // the channel works on, and the late answer is nobody's
	if err := a.call(t.Context(), "double", 4, &got); err != nil || got != 8 {
		t.Errorf("got %d, %v", got, err)
	}
	if err := a.call(ctx, "double", 4, &got); !errors.Is(err, context.Canceled) {
		t.Errorf("a call with an ended context: %v", err)
	}
}

func testPeerDeath(t *testing.T, pair pairing) {
	serving := make(chan struct{})
	handlerEnded := make(chan struct{})
	a, b := pair(t, nil, func(ctx context.Context, r *Request) (any, error) {
		close(serving)
		<-ctx.Done()
		close(handlerEnded)
		return nil, nil
	})
	pending := make(chan error, 1)
	go func() { pending <- a.call(t.Context(), "wait", nil, nil) }()
	<-serving
	b.Close()
	if err := <-pending; !errors.Is(err, ErrClosed) {
		t.Errorf("the pending call: %v", err)
	}
	<-a.Done()
	<-handlerEnded
	for _, c := range []*Conn{a, b} {
		if err := c.call(t.Context(), "x", nil, nil); !errors.Is(err, ErrClosed) {
			t.Errorf("a later call: %v", err)
		}
		if err := c.notify("x", nil); !errors.Is(err, ErrClosed) {
			t.Errorf("a later notice: %v", err)
		}
		c.Close() // again
	}
}

// TestLastAnswer has the peer answer and go: the answer counts.
func TestLastAnswer(t *testing.T) {
	a, raw := rawPair(t, nil)
	result := make(chan error, 1)
	var got int
	go func() { result <- a.call(t.Context(), "x", nil, &got) }()
	m := readMessage(t, raw)
	if _, err := raw.Write(onWire(fmt.Sprintf(`{"id":%d,"result":7}`, m.ID))); err != nil {
		t.Fatal(err)
	}
	raw.Close()
	if err := <-result; err != nil || got != 7 {
		t.Errorf("got %d, %v", got, err)
	}
}

// TestPeerDoesNotRead fills the channel to a peer that has stopped. Calls must
// end with their context, and what was cut off must not spoil the stream.
func TestPeerDoesNotRead(t *testing.T) {
	a, raw := rawPair(t, nil)
	big := strings.Repeat("x", 8<<20) // no socket buffer holds it
	ctx, cancel := context.WithCancel(t.Context())
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- a.call(ctx, "first", big, nil, w) }()
	var head [4]byte
	if _, err := raw.Read(head[:1]); err != nil { // it is being sent
		t.Fatal(err)
	}
	go func() { second <- a.call(ctx, "second", nil, nil) }()
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("the call that is half sent: %v", err)
	}
	w.Close()
	if err := <-second; !errors.Is(err, context.Canceled) {
		t.Errorf("the call behind it: %v", err)
	}
	if _, err := io.ReadFull(raw, head[1:]); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, binary.BigEndian.Uint32(head[:]))
	if _, err := io.ReadFull(raw, body); err != nil {
		t.Fatal(err)
	}
	m := new(message)
	if err := json.Unmarshal(body, m); err != nil || m.Method != "first" || len(m.Params) != len(big)+2 {
		t.Errorf("%s of %d bytes, %v", m.Method, len(m.Params), err)
	}
	if m := readMessage(t, raw); !m.Cancel {
		t.Errorf("got %+v", m)
	}
	// No descriptor of the sender's is left.
	if b, err := io.ReadAll(r); len(b) > 0 || err != nil {
		t.Errorf("%q, %v", b, err)
	}
}

func testNoticesInOrder(t *testing.T, pair pairing) {
	const n = 10 * noticeQueue
	got := make(chan int, n)
	_, b := pair(t, func(_ context.Context, r *Request) (any, error) {
		var i int
		if err := r.decode(&i); err != nil {
			t.Error(err)
		}
		got <- i
		return nil, errors.New("nobody hears this")
	}, nil)
	for i := range n {
		if err := b.notify("n", i); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		if g := <-got; g != i {
			t.Fatalf("notice %d came when %d was due", g, i)
		}
	}
}

// testNoticeToNobody sends a notice to an end without a handler.
func testNoticeToNobody(t *testing.T, pair pairing) {
	a, b := pair(t, nil, double)
	if err := b.notify("x", nil); err != nil {
		t.Fatal(err)
	}
	if err := a.call(t.Context(), "double", 1, nil); err != nil {
		t.Error(err)
	}
}

func testFiles(t *testing.T, pair pairing) {
	kept := make(chan *os.File, 1)
	a, _ := pair(t, nil, func(_ context.Context, r *Request) (any, error) {
		for i, f := range r.Files {
			flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0)
			if err != nil || flags&unix.FD_CLOEXEC == 0 {
				return nil, fmt.Errorf("file %d: flags %#x, %v", i, flags, err)
			}
			fmt.Fprintf(f, "file %d of %d", i, len(r.Files))
		}
		if r.Method == "keep" {
			kept <- r.Files[0]
			r.Files[0] = nil
		}
		return nil, nil
	})
	for _, n := range []int{1, 3, MaxFiles} {
		var readers, writers []*os.File
		for range n {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			readers, writers = append(readers, r), append(writers, w)
		}
		if err := a.call(t.Context(), "write", nil, nil, writers...); err != nil {
			t.Fatal(err)
		}
		for i, w := range writers {
			if _, err := w.WriteString("."); err != nil {
				t.Errorf("the caller's file is not the caller's any more: %v", err)
			}
			w.Close()
			// The end of it shows that the handler's end is closed, too.
			if b, err := io.ReadAll(readers[i]); string(b) != fmt.Sprintf("file %d of %d.", i, n) || err != nil {
				t.Errorf("%q, %v", b, err)
			}
			readers[i].Close()
		}
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := a.call(t.Context(), "keep", nil, nil, w); err != nil {
		t.Fatal(err)
	}
	w.Close()
	f := <-kept
	if _, err := f.WriteString("!"); err != nil {
		t.Errorf("a file that the handler kept: %v", err)
	}
	f.Close()
	if b, err := io.ReadAll(r); string(b) != "file 0 of 1!" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
}

// testFileStaysAsItIs sends a file in non-blocking mode, which it must stay in:
// otherwise the caller's reads block a thread and deadlines have no effect.
func testFileStaysAsItIs(t *testing.T, pair pairing) {
	a, _ := pair(t, nil, func(context.Context, *Request) (any, error) { return nil, nil })
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if err := a.call(t.Context(), "x", nil, nil, r); err != nil {
		t.Fatal(err)
	}
	if err := r.SetReadDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read: %v", err)
	}
}

func testFilesRefused(t *testing.T, pair pairing) {
	a, _ := pair(t, nil, double)
	closed, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	if err := a.call(t.Context(), "double", 1, nil, closed); err == nil {
		t.Error("a closed file was sent")
	}
	if err := a.call(t.Context(), "double", 1, nil, make([]*os.File, MaxFiles+1)...); err == nil {
		t.Error("more than MaxFiles were sent")
	}
	var got int
	if err := a.call(t.Context(), "double", 1, &got); err != nil || got != 2 {
		t.Errorf("afterwards: %d, %v", got, err)
	}
}

// TestOversize asks for more than fits: the call fails and the channel lives.
func TestOversize(t *testing.T) {
	a, _ := pair(t, nil, double)
	if err := a.call(t.Context(), "double", strings.Repeat("x", MaxMessage), nil); !errors.Is(err, errTooLong) {
		t.Errorf("got %v", err)
	}
	var got int
	if err := a.call(t.Context(), "double", 1, &got); err != nil || got != 2 {
		t.Errorf("afterwards: %d, %v", got, err)
	}
}

// TestMalformed sends what no Conn sends: the channel ends, with no harm done to
// the process, and files that came along are closed.
func TestMalformed(t *testing.T) {
	for name, messages := range map[string][][]byte{
		"too long":         {binary.BigEndian.AppendUint32(nil, MaxMessage+1)},
		"no JSON":          {onWire("}{")},
		"empty":            {onWire("")},
		"wrong types":      {onWire(`{"id":"one","method":"x"}`)},
		"half a header":    {{0, 0}},
		"half a message":   {onWire(`{"id":1,"method":"wait"}`)[:10]},
		"one ID two times": {onWire(`{"id":1,"method":"wait"}`), onWire(`{"id":1,"method":"wait"}`)},
	} {
		t.Run(name, func(t *testing.T) {
			a, raw := rawPair(t, func(ctx context.Context, _ *Request) (any, error) {
				<-ctx.Done()
				return nil, nil
			})
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			for _, b := range messages {
				if _, _, err := raw.WriteMsgUnix(b, unix.UnixRights(int(w.Fd())), nil); err != nil {
					t.Fatal(err)
				}
			}
			w.Close()
			if strings.HasPrefix(name, "half") {
				if err := raw.CloseWrite(); err != nil {
					t.Fatal(err)
				}
			}
			<-a.Done()
			if _, err := io.ReadAll(r); err != nil { // ends when the last copy of w is closed
				t.Error(err)
			}
		})
	}
}

// TestTooManyFiles sends more files than a message may carry.
func TestTooManyFiles(t *testing.T) {
	a, raw := rawPair(t, nil)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	fds := make([]int, MaxFiles+1)
	for i := range fds {
		fds[i] = int(w.Fd())
	}
	if _, _, err := raw.WriteMsgUnix(onWire(`{"id":1,"method":"x"}`), unix.UnixRights(fds...), nil); err != nil {
		t.Fatal(err)
	}
	w.Close()
	<-a.Done()
	if _, err := io.ReadAll(r); err != nil {
		t.Error(err)
	}
}

// TestUnexpected sends what is harmless: the channel lives on, and no file stays
// open.
func TestUnexpected(t *testing.T) {
	a, raw := rawPair(t, double)
	result := make(chan int, 1)
	go func() {
		var got int
		if err := a.call(t.Context(), "x", nil, &got); err != nil {
			t.Error(err)
		}
		result <- got
	}()
	readMessage(t, raw)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, body := range []string{
		`{"id":99,"result":1}`,      // an answer to nothing
		`{"id":99,"cancel":true}`,   // the end of a request that is not there
		`{"cancel":true}`,           // of none
		`{}`,                        // nothing at all
		`{"method":"n"}`,            // a notice
		`{"id":1,"result":5}`,       // the answer
		`{"id":1,"result":6}`,       // and again
		`{"id":1,"result":7}`,       // and again: this one found the reader blocked
		`{"id":9,"method":"other"}`, // a request
	} {
		if _, _, err := raw.WriteMsgUnix(onWire(body), unix.UnixRights(int(w.Fd())), nil); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	if got := <-result; got != 5 {
		t.Errorf("got %d", got)
	}
	if m := readMessage(t, raw); m.ID != 9 || m.Error == nil {
		t.Errorf("answer %+v", m)
	}
	if _, err := io.ReadAll(r); err != nil {
		t.Error(err)
	}
}

// TestByteByByte has a message arrive in the smallest pieces.
func TestByteByByte(t *testing.T) {
	_, raw := rawPair(t, double)
	for _, b := range onWire(`{"id":3,"method":"double","params":21}`) {
		if _, err := raw.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	if m := readMessage(t, raw); m.ID != 3 || !bytes.Equal(m.Result, []byte("42")) {
		t.Errorf("got %+v", m)
	}
}

func TestPeer(t *testing.T) {
	a, _ := pair(t, nil, nil)
	cred, err := a.Peer()
	if err != nil || cred.Pid != int32(os.Getpid()) || cred.Uid != uint32(os.Getuid()) {
		t.Errorf("%+v, %v", cred, err)
	}
	a.Close()
	if _, err := a.Peer(); err == nil {
		t.Error("a closed channel has a peer")
	}
}

func TestFromFileRefuses(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := FromFile(null, nil); err == nil {
		t.Error("/dev/null is a channel")
	}
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.DialTCP("tcp", nil, l.Addr().(*net.TCPAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	f, err := c.File()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := FromFile(f, nil); err == nil {
		t.Error("a TCP connection is a channel")
	}
}

func BenchmarkCall(b *testing.B) {
	a, file, err := Pair(nil)
	if err != nil {
		b.Fatal(err)
	}
	c, err := FromFile(file, double)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	defer a.Close()
	for b.Loop() {
		if err := a.call(b.Context(), "double", 1, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// TestLastNotices has the peer say more than the handler keeps up with, and go.
func TestLastNotices(t *testing.T) {
	const n = 3 * noticeQueue
	release := make(chan struct{})
	var got []int
	a, raw := rawPair(t, func(_ context.Context, r *Request) (any, error) {
		<-release
		var i int
		if err := r.decode(&i); err != nil {
			t.Error(err)
		}
		if i >= n-noticeQueue/2 { // which the reader need not wait for
			<-r.Conn.Done()
		}
		got = append(got, i)
		return nil, nil
	})
	var all []byte
	for i := range n {
		all = append(all, onWire(fmt.Sprintf(`{"method":"x","params":%d}`, i))...)
	}
	if _, err := raw.Write(all); err != nil {
		t.Fatal(err)
	}
	raw.Close()
	close(release)
	a.Wait()
	if len(got) != n || got[n-1] != n-1 {
		t.Errorf("%d of %d notices were handled", len(got), n)
	}
	select {
	case <-a.Done():
	default:
		t.Error("the channel has not ended")
	}
}

// A message is on the wire as package json has it, whatever fields there are.
func TestMessageOnWire(t *testing.T) {
	for _, m := range []message{
		{},
		{ID: 1},
		{Method: "notice", Params: json.RawMessage(`{"a":[1,2]}`)},
		{ID: 2, Method: "request", Params: json.RawMessage("null")},
		{ID: 3, Result: json.RawMessage(`"text"`)},
		{ID: 4, Cancel: true},
		{ID: 5, Error: Errorf(Usage, "no")},
		{Params: json.RawMessage("1"), Result: json.RawMessage("2")},
	} {
		b, err := m.appendTo([]byte("before"))
		if err != nil {
			t.Fatal(err)
		}
		want, err := json.Marshal(&m)
		if err != nil {
			t.Fatal(err)
		}
		var got, wanted message
		if err := errors.Join(json.Unmarshal(b[len("before")+headLen:], &got), json.Unmarshal(want, &wanted)); err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		if diff := cmp.Diff(wanted, got, cmp.AllowUnexported(message{})); diff != "" || !bytes.HasPrefix(b, []byte("before")) ||
			int(binary.BigEndian.Uint32(b[len("before"):])) != len(b)-len("before")-headLen {
			t.Errorf("%q, want %s", b, want)
		}
	}
}
