package hosts

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/ndklab/ndklab/internal/control"
)

// methodSpeak has a part say its parameter over its trunk to a host, and answers with what comes over stream and datagrams.
var methodSpeak = control.NewMethod[[2]string, [2]string]("speak")

// takenTrunks are those of a part of tests.
var takenTrunks = struct {
	sync.Mutex
	byPeer map[string][2]net.Conn
}{byPeer: map[string][2]net.Conn{}}

func takeTrunk(_ context.Context, r *control.Request, peer string) error {
	var both [2]net.Conn
	for i, f := range r.Files {
		c, err := net.FileConn(f)
		if err != nil {
			return err
		}
		both[i] = c
	}
	takenTrunks.Lock()
	defer takenTrunks.Unlock()
	takenTrunks.byPeer[peer] = both
	return nil
}

func speakOverTrunk(_ context.Context, _ *control.Request, p [2]string) (heard [2]string, err error) {
	takenTrunks.Lock()
	both := takenTrunks.byPeer[p[0]]
	takenTrunks.Unlock()
	if both[0] == nil {
		return heard, fmt.Errorf("there is no trunk to %s", p[0])
	}
	for i, c := range both {
		if _, err := c.Write([]byte(p[1])); err != nil {
			return heard, err
		}
		got := make([]byte, len(p[1]))
		for n := 0; n < len(got); n = max(n, 0) {
			m, err := c.Read(got[n:])
			if err != nil {
				return heard, err
			}
			if i == 1 && m == len(got) && (got[0] == '?' || got[0] == '!') {
				continue // a late datagram of the greeting
			}
			n += m
		}
		heard[i] = string(got)
	}
	return heard, nil
}

// TestJoin: parts have trunks to each other's, and nothing of the greeting is left on the streams.
func TestJoin(t *testing.T) {
	h, found, _ := come(t, Spec{Kind: Local, Count: 3})
	for _, pair := range [][2]int{{0, 1}, {2, 0}, {1, 2}} {
		a, b := found[pair[0]], found[pair[1]]
		if err := h.Join(t.Context(), a, b); err != nil {
			t.Fatal(err)
		}
		results := make(chan error, 2)
		for _, ends := range [][2]*Host{{a, b}, {b, a}} {
			go func() {
				heard, err := methodSpeak.Call(t.Context(), ends[0].Conn, [2]string{ends[1].Name, ends[0].Name})
				if want := [2]string{ends[1].Name, ends[1].Name}; err == nil && heard != want {
					err = fmt.Errorf("%s heard %q, want %q", ends[0].Name, heard, want)
				}
				results <- err
			}()
		}
		for range 2 {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
	}
}

// TestGreetingOfStrangers: who does not know the secret, or another trunk's, gets no trunk, and the sockets are closed.
func TestGreetingOfStrangers(t *testing.T) {
	own, err := NewCredentials()
	if err != nil {
		t.Fatal(err)
	}
	other, err := NewCredentials()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what             string
		dialer, listener *Credentials
		name             string // of the trunk that is dialled
		want             string // "": it works
	}{
		{"the lab's own", own, own, "a b", ""},
		{"another lab", other, own, "a b", errCode.Error()},
		{"another trunk", own, own, "a c", errCode.Error()},
	} {
		t.Run(c.what, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			listened := make(chan error, 1)
			go func() {
				conn, err := l.Accept()
				if err != nil {
					listened <- err
					return
				}
				s, err := c.listener.greetAsListener(testContext(t), conn.(*net.TCPConn), "a b")
				if err == nil {
					s.close()
				}
				listened <- err
			}()
			conn, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			s, err := c.dialer.greetAsDialer(testContext(t), conn.(*net.TCPConn), c.name)
			listenErr := <-listened
			if c.want == "" {
				if err != nil || listenErr != nil {
					t.Fatal(err, listenErr)
				}
				s.close()
				return
			}
			if err == nil || err.Error() != c.want || listenErr == nil {
				t.Errorf("dialer: %v, listener: %v", err, listenErr)
			}
			if _, err := conn.Read(make([]byte, 1)); err == nil {
				t.Error("the stream is open")
			}
		})
	}
}

// TestGreetingOfIntruder: a dialer that does not know the secret learns a code of its nonce, and is sent away after the
// first thing it says.
func TestGreetingOfIntruder(t *testing.T) {
	own, err := NewCredentials()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	listened := make(chan error, 1)
	go func() {
		_, err := own.greetAsListener(testContext(t), accepted.(*net.TCPConn), "a b")
		listened <- err
	}()
	if _, err := conn.Write(make([]byte, nonceLen)); err != nil {
		t.Fatal(err)
	}
	heard := make([]byte, nonceLen+portLen+32)
	if _, err := io.ReadFull(conn, heard); err != nil {
		t.Fatal(err)
	}
	// The listener's own code, sent back.
	if _, err := conn.Write(append(heard[nonceLen:nonceLen+portLen], heard[nonceLen+portLen:]...)); err != nil {
		t.Fatal(err)
	}
	if err := <-listened; err != errCode {
		t.Errorf("the listener: %v", err)
	}
}

// TestJoinFails: a trunk that cannot be made is told with both hosts and the reason.
func TestJoinFails(t *testing.T) {
	h, found, _ := come(t, Spec{Kind: Local, Count: 2})
	unreachable := *found[1]
	unreachable.Address = "192.0.2.1" // TEST-NET-1 of RFC 5737
	ctx := testContext(t)
	err := h.Join(ctx, found[0], &unreachable)
	if err == nil || !strings.Contains(err.Error(), "trunk of hosts host1 and host2: ") || !strings.Contains(err.Error(), "firewall") {
		t.Errorf("%v", err)
	}
	if err := h.Join(ctx, found[0], found[1]); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
