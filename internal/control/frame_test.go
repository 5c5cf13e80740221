package control

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// framed is a frame on the wire.
func framed(f frame, body ...byte) []byte {
	b := make([]byte, frameLen)
	f.put(b)
	return append(b, body...)
}

// request is a message with a table of files on the wire.
func request(text string, files ...entry) []byte {
	body := append(appendTable(nil, files), text...)
	return framed(frame{kind: frameMessage, value: uint32(len(body))}, body...)
}

// keeping is a handler that keeps what it is sent until the channel ends.
func keeping(ctx context.Context, _ *Request) (any, error) {
	<-ctx.Done()
	return nil, nil
}

// rawStream is a channel over TCP whose other end is bare.
func rawStream(t *testing.T, here Handler) (*Conn, net.Conn) {
	t.Helper()
	x, raw := tcpConns(t)
	c := OverStream(x, here)
	t.Cleanup(func() { c.Close(); raw.Close() })
	return c, raw
}

// TestBreaches sends what no Conn sends: the channel ends, and no file is left.
func TestBreaches(t *testing.T) {
	open := request(`{"id":1,"method":"x"}`, entry{number: 1, passage: outward}, entry{number: 2, passage: inward}, entry{number: 3, passage: both})
	data := func(number uint32, n int) []byte {
		return framed(frame{kind: frameData, number: number, value: uint32(n)}, make([]byte, n)...)
	}
	for name, frames := range map[string][][]byte{
		"a kind":                  {framed(frame{kind: kinds})},
		"a long message":          {framed(frame{kind: frameMessage, value: uint32(MaxMessage + maxTable + 1)})},
		"a message without table": {framed(frame{kind: frameMessage})},
		"no JSON":                 {request("}{")},
		"half a table":            {framed(frame{kind: frameMessage, value: 3}, 1, 0, 0)},
		"half a terminal":         {framed(frame{kind: frameMessage, value: 7}, 1, 0, 0, 0, 1, byte(lentTerm), 0)},
		"many files":              {request(`{"id":1,"method":"x"}`, make([]entry, MaxFiles+1)...)},
		"a passage":               {request(`{"id":1,"method":"x"}`, entry{number: 1, passage: lentTerm + 1})},
		"stream 0":                {request(`{"id":1,"method":"x"}`, entry{passage: outward})},
		"a stream again":          {open, request(`{"id":2,"method":"x"}`, entry{number: 2, passage: outward})},
		"much data at once":       {open, framed(frame{kind: frameData, number: 1, value: maxData + 1})},
		"more than the window":    {open, bytes.Repeat(data(1, maxData), (window+1<<20)/maxData)}, // of which a pipe takes some
		"data the wrong way":      {open, data(2, 1)},
		"data after the end":      {open, framed(frame{kind: frameEnd, number: 3}), data(3, 1)},
		"two ends":                {open, framed(frame{kind: frameEnd, number: 3}), framed(frame{kind: frameEnd, number: 3})},
		"an end the wrong way":    {open, framed(frame{kind: frameEnd, number: 2})},
		"much credit":             {open, framed(frame{kind: frameCredit, number: 2, value: 1})},
		"credit the wrong way":    {open, framed(frame{kind: frameCredit, number: 1, value: 1})},
		"a reset the wrong way":   {open, framed(frame{kind: frameReset, number: 1})},
		"a size of no terminal":   {open, framed(frame{kind: frameSize, number: 1})},
		"a stream of nobody's":    {open, data(4, 1)},
		"a stream of ours":        {open, framed(frame{kind: frameReset, theirs: true, number: 1})},
		"half a frame":            {{byte(frameData), 0}},
		"half of data":            {open, data(1, 100)[:50]},
	} {
		t.Run(name, func(t *testing.T) {
			keepsDescriptors(t)
			c, raw := rawStream(t, keeping)
			for _, b := range frames {
				// It fails when the channel has ended already.
				_, _ = raw.Write(b)
			}
			if strings.HasPrefix(name, "half") {
				if err := raw.(*net.TCPConn).CloseWrite(); err != nil {
					t.Fatal(err)
				}
			}
			<-c.Done()
		})
	}
}

// TestLateFrames: frames for a stream that is over here, but was not yet when the peer sent
// them, do no harm.
func TestLateFrames(t *testing.T) {
	keepsDescriptors(t)
	c, raw := rawStream(t, func(context.Context, *Request) (any, error) { return 7, nil })
	// The handler's end of both is closed at once; that of the second is told by an end, and of
	// the first by a reset, before the answer.
	for _, b := range [][]byte{
		request(`{"id":1,"method":"x"}`, entry{number: 1, passage: outward}, entry{number: 2, passage: inward}),
		framed(frame{kind: frameData, number: 1, value: 1}, 'x'),
	} {
		if _, err := raw.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[kind]uint32{}
	for len(seen) < 3 {
		f, err := readFrame(raw, MaxMessage)
		if err != nil {
			t.Fatal(err)
		}
		seen[f.kind] = f.number
		if _, err := io.CopyN(io.Discard, raw, bodyLen(f)); err != nil {
			t.Fatal(err)
		}
	}
	if seen[frameEnd] != 2 || seen[frameReset] != 1 {
		t.Errorf("got %v", seen)
	}
	for _, b := range [][]byte{
		framed(frame{kind: frameData, number: 1, value: 1}, 'x'),
		framed(frame{kind: frameEnd, number: 1}),
		framed(frame{kind: frameData, number: 1, value: 1}, 'x'),
		framed(frame{kind: frameReset, number: 2}),
		request(`{"id":2,"method":"x"}`),
	} {
		if _, err := raw.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	for {
		f, err := readFrame(raw, MaxMessage)
		if err != nil {
			t.Fatal(err)
		}
		body := make([]byte, bodyLen(f))
		if _, err := io.ReadFull(raw, body); err != nil {
			t.Fatal(err)
		}
		if f.kind == frameMessage && bytes.Contains(body, []byte(`"id":2`)) {
			break
		}
	}
	if c.ctx.Err() != nil {
		t.Error("the channel has ended")
	}
}

func bodyLen(f frame) int64 {
	if f.kind == frameMessage || f.kind == frameData {
		return int64(f.value)
	}
	return 0
}

// TestNoDescriptors: where files cannot be made, this is the answer, and the channel lives on.
func TestNoDescriptors(t *testing.T) {
	keepsDescriptors(t)
	c, raw := rawStream(t, double)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	null, err := os.Open(os.DevNull) // the lowest number that is free
	if err != nil {
		t.Fatal(err)
	}
	low := limit
	low.Cur = uint64(null.Fd())
	null.Close()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	_, err = raw.Write(request(`{"id":1,"method":"double","params":2}`, entry{number: 1, passage: inward}, entry{number: 2, passage: both}))
	var frames []frame
	var answer []byte
	for err == nil && !(len(answer) > 0 && len(frames) == 3) {
		var f frame
		if f, err = readFrame(raw, MaxMessage); err == nil {
			body := make([]byte, bodyLen(f))
			if _, err = io.ReadFull(raw, body); f.kind == frameMessage {
				answer = body
			} else {
				frames = append(frames, f)
			}
		}
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(answer, []byte("too many open files")) {
		t.Errorf("the answer is %q", answer)
	}
	for number, kinds := range map[uint32][]kind{1: {frameEnd}, 2: {frameEnd, frameReset}} {
		for _, kind := range kinds {
			if !slices.Contains(frames, frame{kind: kind, theirs: true, number: number}) {
				t.Errorf("stream %d was not ended by %d: %v", number, kind, frames)
			}
		}
	}
	if c.ctx.Err() != nil {
		t.Error("the channel has ended")
	}
}

// FuzzFrames has a peer send anything: nothing panics, and nothing is left.
func FuzzFrames(f *testing.F) {
	open := request(`{"id":1,"method":"x"}`, entry{number: 1, passage: outward}, entry{number: 2, passage: inward}, entry{number: 3, passage: both})
	for _, seed := range [][]byte{
		{}, open, framed(frame{kind: frameMessage, value: MaxMessage}),
		append(open, framed(frame{kind: frameData, number: 1, value: 3}, 'a', 'b', 'c')...),
		append(open, framed(frame{kind: frameEnd, number: 3, value: 1})...),
		append(open, framed(frame{kind: frameReset, number: 2})...),
		request(`{"id":1,"method":"x"}`, entry{number: 1, passage: lentTerm}),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		if len(sent) >= frameLen && binary.BigEndian.Uint32(sent[5:]) > 1<<20 {
			t.Skip("a message that takes long to allocate")
		}
		x, raw := net.Pipe()
		c := OverStream(x, func(ctx context.Context, r *Request) (any, error) {
			if len(r.Files) == 0 {
				return nil, nil
			}
			return echo(ctx, r)
		})
		go func() { _, _ = io.Copy(io.Discard, raw) }()
		if _, err := raw.Write(sent); err != nil && !errors.Is(err, io.ErrClosedPipe) {
			t.Error(err)
		}
		raw.Close()
		<-c.Done()
		c.Close()
	})
}
