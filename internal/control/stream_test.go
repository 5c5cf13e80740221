package control

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// tcpConns are the ends of a TCP connection.
func tcpConns(t testing.TB) (a, b net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err = net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err = l.Accept()
	if err != nil {
		a.Close()
		t.Fatal(err)
	}
	return a, b
}

// tcpPair is pair over TCP.
func tcpPair(t *testing.T, here, there Handler) (*Conn, *Conn) {
	t.Helper()
	return streamPair(t, here, there)
}

func streamPair(t testing.TB, here, there Handler) (*Conn, *Conn) {
	t.Helper()
	x, y := tcpConns(t)
	a, b := OverStream(x, here), OverStream(y, there)
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// tlsPair is pair over TLS.
func tlsPair(t *testing.T, here, there Handler) (*Conn, *Conn) {
	t.Helper()
	x, y := tcpConns(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	form := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, form, form, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	a := OverStream(tls.Client(x, &tls.Config{InsecureSkipVerify: true}), here) // the certificate is a test's
	b := OverStream(tls.Server(y, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{cert}, PrivateKey: key}}}), there)
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// pipe is a pipe whose ends are closed with the test.
func pipe(t testing.TB) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// socketpair is a pair of sockets, closed with the test.
func socketpair(t testing.TB) (a, b *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	a, b = os.NewFile(uintptr(fds[0]), "a"), os.NewFile(uintptr(fds[1]), "b")
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// descriptors are those that the process has open.
func descriptors(t testing.TB) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}

// keepsDescriptors fails the test if it has more descriptors at its end than now.
func keepsDescriptors(t *testing.T) {
	t.Helper()
	before := descriptors(t)
	t.Cleanup(func() {
		for deadline := time.Now().Add(30 * time.Second); descriptors(t) > before; runtime.Gosched() {
			if time.Now().After(deadline) {
				t.Errorf("%d descriptors are open, and before there were %d", descriptors(t), before)
				return
			}
		}
	})
}

// TestOutputBeforeAnswer: what a handler writes is in the caller's file when the call
// returns, also if the file stays open at the peer.
func TestOutputBeforeAnswer(t *testing.T) {
	keepsDescriptors(t)
	for name, kept := range map[string]bool{"closed": false, "kept": true} {
		t.Run(name, func(t *testing.T) {
			var keep []*os.File
			c, _ := streamPair(t, nil, func(_ context.Context, r *Request) (any, error) {
				var text string
				if err := r.decode(&text); err != nil {
					return nil, err
				}
				_, err := r.Files[0].WriteString(text)
				if kept {
					keep = append(keep, r.Files[0])
					r.Files[0] = nil
				}
				return nil, err
			})
			for _, n := range []int{0, 1, 100, maxData, window, 3*window + 1} {
				for range 20 {
					out, err := os.Create(t.TempDir() + "/out")
					if err != nil {
						t.Fatal(err)
					}
					if err := c.call(t.Context(), "write", strings.Repeat("x", n), nil, out); err != nil {
						t.Fatal(err)
					}
					if info, err := out.Stat(); err != nil || info.Size() != int64(n) {
						t.Fatalf("%d bytes of %d, %v", info.Size(), n, err)
					}
					out.Close()
				}
			}
			for _, f := range keep {
				f.Close()
			}
		})
	}
}

// TestNobodyReads: a writer whose reader goes is told, at either end.
func TestNobodyReads(t *testing.T) {
	keepsDescriptors(t)
	told := make(chan error, 1)
	c, _ := streamPair(t, nil, func(_ context.Context, r *Request) (any, error) {
		if r.Method == "head" {
			_, err := r.Files[0].Read(make([]byte, 2))
			return nil, err
		}
		for {
			if _, err := r.Files[0].WriteString("y\n"); err != nil {
				told <- err
				return nil, nil
			}
		}
	})
	t.Run("here", func(t *testing.T) {
		r, w := pipe(t)
		answer := make(chan error, 1)
		go func() { answer <- c.call(t.Context(), "yes", nil, nil, w) }()
		if _, err := io.ReadFull(r, make([]byte, 2)); err != nil {
			t.Fatal(err)
		}
		r.Close()
		if err := <-told; !errors.Is(err, unix.EPIPE) {
			t.Errorf("the handler got %v", err)
		}
		if err := <-answer; err != nil {
			t.Error(err)
		}
	})
	t.Run("there", func(t *testing.T) {
		r, w := pipe(t)
		if _, err := w.WriteString("y\n"); err != nil {
			t.Fatal(err)
		}
		if err := c.call(t.Context(), "head", nil, nil, r); err != nil { // while no more comes
			t.Fatal(err)
		}
		r.Close()
		if _, err := w.WriteString("y\n"); !errors.Is(err, unix.EPIPE) {
			t.Errorf("the caller got %v", err)
		}
	})
}

// echo copies between its first file, which has an end, and its last.
func echo(_ context.Context, r *Request) (any, error) {
	in, out := r.Files[0], r.Files[len(r.Files)-1]
	b, err := io.ReadAll(in)
	if err == nil {
		_, err = out.Write(b)
	}
	return len(b), err
}

// TestKindsOfFiles: what is read ends as the caller's does.
func TestKindsOfFiles(t *testing.T) {
	keepsDescriptors(t)
	c, _ := streamPair(t, nil, echo)
	text := strings.Repeat("0123456789", window/4) // more than may be under way
	path := t.TempDir() + "/file"
	if err := os.WriteFile(path, []byte("before"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, in := range map[string]func(t *testing.T) (f *os.File, want string){
		"a file": func(t *testing.T) (*os.File, string) {
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.Seek(6, io.SeekStart); err != nil {
				t.Fatal(err)
			}
			return f, text
		},
		"nothing": func(t *testing.T) (*os.File, string) {
			f, err := os.Open(os.DevNull)
			if err != nil {
				t.Fatal(err)
			}
			return f, ""
		},
		"a pipe": func(t *testing.T) (*os.File, string) {
			r, w := pipe(t)
			go func() {
				_, _ = w.WriteString(text)
				w.Close()
			}()
			return r, text
		},
		"a blocking pipe": func(t *testing.T) (*os.File, string) {
			r, w := pipe(t)
			go func() {
				_, _ = w.WriteString(text)
				w.Close()
			}()
			if err := unix.SetNonblock(int(r.Fd()), false); err != nil {
				t.Fatal(err)
			}
			return r, text
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, want := in(t)
			defer f.Close()
			out, err := os.Create(t.TempDir() + "/out")
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			var n int
			if err := c.call(t.Context(), "echo", nil, &n, f, out); err != nil || n != len(want) {
				t.Errorf("%d bytes, %v, want %d", n, err, len(want))
			}
			if got, err := os.ReadFile(out.Name()); string(got) != want || err != nil {
				t.Errorf("%d bytes came back, %v, want %d", len(got), err, len(want))
			}
		})
	}
	t.Run("a socket", func(t *testing.T) {
		ours, theirs := socketpair(t)
		answer := make(chan error, 1)
		go func() { answer <- c.call(t.Context(), "echo", nil, nil, theirs) }()
		sent := make(chan error, 1)
		go func() {
			_, err := ours.WriteString(text)
			sent <- errors.Join(err, unix.Shutdown(int(ours.Fd()), unix.SHUT_WR))
		}()
		got := make([]byte, len(text))
		if _, err := io.ReadFull(ours, got); string(got) != text || err != nil {
			t.Errorf("%d bytes came back, %v", len(got), err)
		}
		if err := errors.Join(<-sent, <-answer); err != nil {
			t.Error(err)
		}
	})
}

// TestHalfClose: a handler that shuts down its end of a socket, and reads on.
func TestHalfClose(t *testing.T) {
	keepsDescriptors(t)
	c, _ := streamPair(t, nil, func(_ context.Context, r *Request) (any, error) {
		if _, err := r.Files[0].WriteString("there"); err != nil {
			return nil, err
		}
		if err := unix.Shutdown(int(r.Files[0].Fd()), unix.SHUT_WR); err != nil {
			return nil, err
		}
		b, err := io.ReadAll(r.Files[0])
		return string(b), err
	})
	ours, theirs := socketpair(t)
	var got string
	answer := make(chan error, 1)
	go func() { answer <- c.call(t.Context(), "talk", nil, &got, theirs) }()
	if b, err := io.ReadAll(ours); string(b) != "there" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := ours.WriteString("here"); err != nil {
		t.Error(err)
	}
	ours.Close()
	if err := <-answer; got != "here" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// TestSameFile: what is written to two descriptors of one file stays in order.
func TestSameFile(t *testing.T) {
	keepsDescriptors(t)
	c, _ := streamPair(t, nil, func(_ context.Context, r *Request) (any, error) {
		for i := range 1000 {
			if _, err := fmt.Fprintln(r.Files[i%2], i); err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
	r, w := pipe(t)
	if err := c.call(t.Context(), "count", nil, nil, w, w); err != nil {
		t.Fatal(err)
	}
	w.Close()
	for i := range 1000 {
		var got int
		if _, err := fmt.Fscanln(r, &got); got != i || err != nil {
			t.Fatalf("%d, %v, want %d", got, err, i)
		}
	}
}

// TestUnread: a file that nobody reads holds up no other and no answer, and takes no more
// memory than a window.
func TestUnread(t *testing.T) {
	keepsDescriptors(t)
	c, _ := streamPair(t, nil, func(ctx context.Context, r *Request) (any, error) {
		if r.Method == "double" {
			return double(ctx, r)
		}
		full := r.Files[1]
		r.Files[1] = nil
		go func() {
			defer full.Close()
			for {
				if _, err := full.Write(make([]byte, maxData)); err != nil {
					return
				}
			}
		}()
		_, err := r.Files[0].Write(make([]byte, 20*window))
		return nil, err
	})
	read, reads := pipe(t)
	unread, unreads := pipe(t)
	ctx, cancel := context.WithCancel(t.Context())
	answer := make(chan error, 1)
	go func() { answer <- c.call(ctx, "write", nil, nil, reads, unreads) }()
	if _, err := io.ReadFull(read, make([]byte, 20*window)); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if err := c.call(t.Context(), "double", 1, nil); err != nil {
			t.Fatal(err)
		}
	}
	carrier := c.carrier.(*streams)
	carrier.mu.Lock()
	for _, s := range carrier.live {
		if s.in != nil && cap(s.in.buf) > 2*window {
			t.Errorf("%d bytes are kept", cap(s.in.buf))
		}
	}
	carrier.mu.Unlock()
	cancel()
	if err := <-answer; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	unread.Close()
}

// TestGivenUp: what comes after the caller gave up stays in its file.
func TestGivenUp(t *testing.T) {
	keepsDescriptors(t)
	serving := make(chan struct{})
	release := make(chan struct{})
	defer close(release)
	c, _ := streamPair(t, nil, func(context.Context, *Request) (any, error) {
		close(serving)
		<-release
		return nil, nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	r, w := pipe(t)
	go func() {
		<-serving
		cancel()
	}()
	if err := c.call(ctx, "wait", nil, nil, r); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	carrier := c.carrier.(*streams)
	carrier.mu.Lock()
	for _, s := range carrier.live {
		for !s.out.over {
			s.changed.Wait()
		}
	}
	carrier.mu.Unlock()
	if _, err := w.WriteString("the shell's"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if b, err := io.ReadAll(r); string(b) != "the shell's" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
}

// TestFilesEndWithChannel: whoever has a file of a channel that has ended is told.
func TestFilesEndWithChannel(t *testing.T) {
	keepsDescriptors(t)
	for name, end := range map[string]func(a, b *Conn){
		"closed here":  func(a, _ *Conn) { a.Close() },
		"closed there": func(_, b *Conn) { b.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			kept := make(chan []*os.File, 1)
			a, b := streamPair(t, nil, func(_ context.Context, r *Request) (any, error) {
				kept <- slices.Clone(r.Files)
				clear(r.Files)
				return nil, nil
			})
			in, ins := pipe(t)
			outs, out := pipe(t)
			if err := a.call(t.Context(), "keep", nil, nil, in, out); err != nil {
				t.Fatal(err)
			}
			in.Close()
			out.Close()
			files := <-kept
			end(a, b)
			if got, err := io.ReadAll(files[0]); len(got) > 0 || err != nil {
				t.Errorf("what was read there: %q, %v", got, err)
			}
			if got, err := io.ReadAll(outs); len(got) > 0 || err != nil {
				t.Errorf("what was read here: %q, %v", got, err)
			}
			for err := error(nil); err == nil; { // until the other side is closed
				if _, err = ins.WriteString("x"); err != nil && !errors.Is(err, unix.EPIPE) {
					t.Errorf("what was written here: %v", err)
				}
			}
			for err := error(nil); err == nil; {
				if _, err = files[1].WriteString("x"); err != nil && !errors.Is(err, unix.EPIPE) {
					t.Errorf("what was written there: %v", err)
				}
			}
			for _, f := range files {
				f.Close()
			}
		})
	}
}

// TestLastOutput has the peer write, answer and go, before what it wrote is read.
func TestLastOutput(t *testing.T) {
	keepsDescriptors(t)
	text := strings.Repeat("x", window/2) // of which a pipe holds less
	a, b := streamPair(t, nil, func(_ context.Context, r *Request) (any, error) {
		_, err := r.Files[0].WriteString(text)
		return nil, err
	})
	r, w := pipe(t)
	answer := make(chan error, 1)
	go func() { answer <- a.call(t.Context(), "write", nil, nil, w) }()
	for answered := false; !answered; runtime.Gosched() { // the answer is there, and waits for the output
		a.mu.Lock()
		answered = a.nextID == 1 && len(a.calls) == 0
		a.mu.Unlock()
	}
	w.Close()
	b.Close()
	<-a.Done()
	if got, err := io.ReadAll(r); string(got) != text || err != nil {
		t.Errorf("%d bytes of %d, %v", len(got), len(text), err)
	}
	if err := <-answer; err != nil {
		t.Error(err)
	}
}

// BenchmarkStream has a handler write to a pipe of the caller's.
func BenchmarkStream(b *testing.B) {
	const size = 1 << 20
	c, _ := streamPair(b, nil, func(_ context.Context, r *Request) (any, error) {
		chunk := make([]byte, maxData)
		for {
			if _, err := r.Files[0].Write(chunk); err != nil {
				return nil, nil // the caller has enough
			}
		}
	})
	r, w := pipe(b)
	answer := make(chan error, 1)
	go func() { answer <- c.call(context.Background(), "write", nil, nil, w) }()
	b.SetBytes(size)
	b.ReportAllocs()
	buf := make([]byte, size)
	for b.Loop() {
		if _, err := io.ReadFull(r, buf); err != nil {
			b.Fatal(err)
		}
	}
	r.Close()
	if err := <-answer; err != nil {
		b.Fatal(err)
	}
}
