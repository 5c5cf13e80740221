package pingpong

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/leak"
	"github.com/ndklab/ndklab/internal/node/workload/internal/loopback"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/await"
)

func TestMain(m *testing.M) { leak.Main(m) }

// few are options for a short exchange.
var few = Options{Size: 3000, MTU: DefaultMTU, Iterations: 20, Receives: DefaultReceives, Patience: time.Minute}

// freePort is a TCP port that nobody listens at. It is none of those that the kernel
// hands out, which another program may have by the time that the test does something
// with it, nor where another process of this test begins to look.
func freePort(t *testing.T) uint16 {
	t.Helper()
	const first, ports = 10000, 20000 // the kernel's are from 32768 on
	for i := range ports {
		port := first + (os.Getpid()*7+i)%ports
		if l, err := net.Listen("tcp", fmt.Sprintf(":%d", port)); err == nil {
			l.Close()
			return uint16(port)
		}
	}
	t.Fatal("no port is free")
	panic("unreachable")
}

// An outcome has the result and the error that an end returned.
type outcome struct {
	Result
	err  error
	took time.Duration // of a server
}

// serve starts a server at a port, and returns when a client may come.
func serve(ctx context.Context, t *testing.T, adapter *provider.Adapter, port uint16, o Options) (served chan outcome) {
	t.Helper()
	listening := make(chan struct{})
	served = make(chan outcome, 1)
	go func() {
		began := time.Now()
		r, err := Serve(ctx, adapter, port, o, func() { close(listening) })
		served <- outcome{r, err, time.Since(began)}
	}()
	select {
	case <-listening:
	case o := <-served:
		t.Fatal(o.err)
	}
	return served
}

// exchange has a client call a server, and returns what each found. A client that waits in
// vain is told to stop when the server has ended.
func exchange(t *testing.T, pend, inVain bool, server, client Options) (served, called outcome) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	theirs, address := loopback.Adapter(t, 120, pend)
	ours, local := loopback.Adapter(t, 121, pend)
	if client.Local = local; !server.Local.IsValid() {
		server.Local = address
	}
	port := freePort(t)
	serving := serve(ctx, t, theirs, port, server)
	calling := make(chan outcome, 1)
	go func() {
		r, err := Call(ctx, ours, netip.AddrPortFrom(address, port).String(), client)
		calling <- outcome{Result: r, err: err}
	}()
	served = <-serving
	if inVain {
		cancel()
	}
	return served, <-calling
}

func TestExchange(t *testing.T) {
	for _, test := range []struct {
		name   string
		pend   bool
		change func(*Options)
	}{
		{"default", false, func(o *Options) { o.Size, o.Iterations = DefaultSize, DefaultIterations }},
		{"pending calls", true, func(o *Options) {}},
		{"a byte", false, func(o *Options) { o.Size = 1 }},
		{"large", false, func(o *Options) { o.Size, o.Iterations = 1<<20+1, 3 }},
		{"one iteration", false, func(o *Options) { o.Iterations = 1 }},
		{"one receive", false, func(o *Options) { o.Receives = 1 }},
		{"two receives", false, func(o *Options) { o.Receives = 2 }},
		{"more receives than there may be", false, func(o *Options) { o.Receives = 1 << 30 }},
		{"small packets", false, func(o *Options) { o.MTU = 256 }},
		{"validated", false, func(o *Options) { o.Validate, o.Size = true, 9000 }},
	} {
		t.Run(test.name, func(t *testing.T) {
			var told [2]bytes.Buffer
			o := few
			test.change(&o)
			client := o
			o.Output, client.Output = &told[0], &told[1]
			served, called := exchange(t, test.pend, false, o, client)
			if served.err != nil || called.err != nil {
				t.Fatal(served.err, called.err)
			}
			if served.took < leastLinger {
				t.Errorf("the server is gone after %v, and could not have acknowledged a message again", served.took)
			}
			for _, r := range []outcome{served, called} {
				if r.Bytes != int64(2*o.Size*o.Iterations) || r.Iterations != o.Iterations || r.Elapsed <= 0 || r.Unacknowledged {
					t.Errorf("result %+v", r)
				}
			}
			form := regexp.MustCompile(`^  local address:  (LID 0x0000, QPN 0x[0-9a-f]{6}, PSN 0x[0-9a-f]{6}, GID ::ffff:127\.1\d+\.\d+\.\d+)\n` +
				`  remote address: (LID .*)\n$`)
			server, mine := form.FindStringSubmatch(told[0].String()), form.FindStringSubmatch(told[1].String())
			if server == nil || mine == nil || mine[1] != server[2] || mine[2] != server[1] {
				t.Errorf("the ends said\n%sand\n%s", &told[0], &told[1])
			}
		})
	}
}

// TestResult: in the form of ibv_rc_pingpong.
func TestResult(t *testing.T) {
	r := Result{Bytes: 8192000, Iterations: 1000, Elapsed: 22 * time.Millisecond}
	const want = "8192000 bytes in 0.02 seconds = 2978.91 Mbit/sec\n1000 iters in 0.02 seconds = 22.00 usec/iter"
	if got := r.String(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestMessage: what a client of ibv_rc_pingpong sends, without and with -c.
func TestMessage(t *testing.T) {
	message := make([]byte, 8194)
	fill(message, false)
	if strings.Trim(string(message), "{") != "" {
		t.Error("without -c")
	}
	fill(message, true)
	page := strings.Repeat("{", 4095)
	if want := "\x00" + page + "\x00" + page + "\x00{"; string(message) != want {
		t.Error("with -c")
	}
}

// TestUnlikeEnds: ends that were not asked for the same find out.
func TestUnlikeEnds(t *testing.T) {
	for _, test := range []struct {
		name             string
		change           func(server, client *Options)
		ofServer, ofCall string
		inVain           bool // the client waits for a message of the server
	}{
		{
			"the server expects less", func(s, c *Options) { s.Size = 2999 },
			"message 1 of 20: receive: more than the 2999 bytes expected; both ends need the same size", "message 1 of 20: send: ", false,
		},
		{
			"the server expects more", func(s, c *Options) { s.Size = 3001 },
			"message 1 of 20: receive: 3000 bytes, expected 3001; both ends need the same size", "message 1 of 20: ", true,
		},
		{"the server does more", func(s, c *Options) { s.Iterations, s.hasty = 21, 21 }, "message 21 of 21: receive: " + errSilent.Error(), "<nil>", false},
		{"the server does fewer", func(s, c *Options) { s.Iterations, c.hasty = 19, 20 }, "<nil>", "message 20 of 20: ", false},
		{"the server validates", func(s, c *Options) { s.Validate = true }, "receive: byte 0 is 0x7b, expected 0x0; both ends need -c", "message 1 of 20: ", true},
		{"the client validates", func(s, c *Options) { c.Validate = true }, "<nil>", "<nil>", false}, // the server gives back what came
		{"the server has smaller packets", func(s, c *Options) { s.MTU = 512 }, "message 1 of 20: ", "message 1 of 20: send: the peer refuses the message; both ends need the same size and MTU: STATUS_REMOTE_RESOURCES", false},
		{
			"the server has larger packets than there may be", func(s, c *Options) { s.MTU = 4096 },
			"MTU 4096 is more than packets from 127.120.", "closed the TCP connection after 0 of 52 bytes", false,
		},
		{"the server has an address of nobody", func(s, c *Options) { s.Local = netip.MustParseAddr("10.9.9.9") }, "10.9.9.9 is no address of the adapter", "", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, c := few, few
			test.change(&s, &c)
			served, called := exchange(t, false, test.inVain, s, c)
			if got := fmt.Sprint(served.err); !strings.Contains(got, test.ofServer) {
				t.Errorf("server: %s, want %s", got, test.ofServer)
			}
			if got := fmt.Sprint(called.err); !strings.Contains(got, test.ofCall) {
				t.Errorf("client: %s, want %s", got, test.ofCall)
			}
		})
	}
}

func TestOptions(t *testing.T) {
	adapter, address := loopback.Adapter(t, 120, false)
	for name, change := range map[string]func(*Options){
		"size 0":          func(o *Options) { o.Size = 0 },
		"size -1":         func(o *Options) { o.Size = -1 },
		"size too large":  func(o *Options) { o.Size = MaxSize + 1 },
		"iterations 0":    func(o *Options) { o.Iterations = 0 },
		"iterations -1":   func(o *Options) { o.Iterations = -1 },
		"receives 0":      func(o *Options) { o.Receives = 0 },
		"nobody listens":  func(o *Options) {},
		"negative number": func(o *Options) { o.Receives = -1 },
	} {
		o := few
		change(&o)
		if _, err := Call(t.Context(), adapter, netip.AddrPortFrom(address, freePort(t)).String(), o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestOddClients: a server that meets something else than a client says so, and
// ends.
func TestOddClients(t *testing.T) {
	self := destination{qpn: 0x11, psn: 5, gid: netip.MustParseAddr("127.0.0.1")}
	for _, test := range []struct {
		name string
		do   func(net.Conn) error
		want string
	}{
		{"closes at once", func(c net.Conn) error { return nil }, "closed the TCP connection after 0 of 52 bytes"},
		{"speaks HTTP", func(c net.Conn) error {
			_, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: server.example.com\r\nAccept: */*\r\n\r\n")
			return err
		}, "is not what ibv_rc_pingpong says"},
		{"closes in between", func(c net.Conn) error {
			_, err := io.WriteString(c, "0000:0000")
			return err
		}, "closed the TCP connection after 9 of 52 bytes"},
		{"says nothing", func(c net.Conn) error {
			_, err := c.Read(make([]byte, 1)) // until the server gives up
			return err
		}, errSilent.Error()},
		{"is not a queue pair", func(c net.Conn) error { return destination{gid: self.gid}.write(c) }, "INVALID_PARAMETER"},
		{"has IPv6", func(c net.Conn) error {
			return destination{qpn: 0x11, gid: netip.MustParseAddr("fd00::1")}.write(c)
		}, "INVALID_PARAMETER"},
		{"goes without a word", func(c net.Conn) error {
			if err := self.write(c); err != nil {
				return err
			}
			_, err := readDestination(c)
			return err
		}, "closed the TCP connection after 0 of 5 bytes"},
		{"says something else at the end", func(c net.Conn) error {
			if err := self.write(c); err != nil {
				return err
			}
			if _, err := readDestination(c); err != nil {
				return err
			}
			_, err := io.WriteString(c, "never")
			return err
		}, `"never" is not what ibv_rc_pingpong says`},
		{"never sends", func(c net.Conn) error {
			if err := self.write(c); err != nil {
				return err
			}
			if _, err := readDestination(c); err != nil {
				return err
			}
			if err := writeDone(c); err != nil {
				return err
			}
			_, err := c.Read(make([]byte, 1))
			return err
		}, "message 1 of 20: receive: " + errSilent.Error()},
	} {
		t.Run(test.name, func(t *testing.T) {
			adapter, address := loopback.Adapter(t, 120, false)
			port := freePort(t)
			o := few
			o.Local, o.hasty = address, 1
			if test.want == errSilent.Error() { // by TCP; the others do something in time
				o.Patience = 300 * time.Millisecond
			}
			served := serve(t.Context(), t, adapter, port, o)
			c, err := net.Dial("tcp", netip.AddrPortFrom(address, port).String())
			if err != nil {
				t.Fatal(err)
			}
			if err := test.do(c); err != nil && err != io.EOF && !strings.Contains(err.Error(), "reset by peer") {
				t.Error(err)
			}
			c.Close()
			if got := <-served; got.err == nil || !strings.Contains(got.err.Error(), test.want) {
				t.Errorf("got %v, want %s", got.err, test.want)
			}
		})
	}
}

// TestOddServers: a client that meets something else than a server.
func TestOddServers(t *testing.T) {
	for _, test := range []struct{ name, says, want string }{
		{"closes at once", "", "closed the TCP connection after 0 of 52 bytes"},
		{"speaks SMTP", "220 mail.example.com ESMTP, at your service since 1982\r\n", "is not what ibv_rc_pingpong says"},
		// Nobody has the queue pair.
		{"is dead", "0000:000011:000001:00000000000000000000ffff7f000001\x00", "message 1 of 20: send: the peer does not acknowledge; it may have ended, or its link is down: STATUS_IO_TIMEOUT"},
	} {
		t.Run(test.name, func(t *testing.T) {
			adapter, address := loopback.Adapter(t, 120, false)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			answered := make(chan error, 1)
			go func() {
				c, err := l.Accept()
				if err == nil {
					if _, err = readDestination(c); err == nil {
						_, err = io.WriteString(c, test.says)
					}
					c.Close()
				}
				answered <- err
			}()
			o := few
			o.Local = address
			_, err = Call(t.Context(), adapter, l.Addr().String(), o)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
			if err := <-answered; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestInterrupt: an end stops when it is told to, whatever it waits for.
func TestInterrupt(t *testing.T) {
	stop := errors.New("stop")
	for _, test := range []struct {
		name string
		wait func(net.Conn) error // until the server waits
	}{
		{"before a client comes", nil},
		{"before it says anything", func(c net.Conn) error { return nil }},
		{"before its first message", func(c net.Conn) error {
			if err := (destination{qpn: 0x11, gid: netip.MustParseAddr("127.0.0.1")}).write(c); err != nil {
				return err
			}
			if _, err := readDestination(c); err != nil {
				return err
			}
			return writeDone(c)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			adapter, address := loopback.Adapter(t, 120, false)
			ctx, cancel := context.WithCancelCause(t.Context())
			port := freePort(t)
			o := few
			o.Local = address
			served := serve(ctx, t, adapter, port, o)
			if test.wait != nil {
				c, err := net.Dial("tcp", netip.AddrPortFrom(address, port).String())
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				if err := test.wait(c); err != nil {
					t.Fatal(err)
				}
			}
			cancel(stop)
			if got := <-served; !errors.Is(got.err, stop) {
				t.Errorf("got %v", got.err)
			}
		})
	}
}

// TestLastAcknowledgement: a client that leaves with the last message without having
// acknowledged it is no failure.
func TestLastAcknowledgement(t *testing.T) {
	adapter, address := loopback.Adapter(t, 120, false)
	ours, local := loopback.Adapter(t, 121, false)
	port := freePort(t)
	o := few
	o.Local, o.Iterations = address, 1
	served := serve(t.Context(), t, adapter, port, o)

	// The client never has a receive, and goes when its own message has arrived.
	pd, err := await.Create(t.Context(), ours.CreatePD)
	if err != nil {
		t.Fatal(err)
	}
	defer pd.Close(nil, nil)
	qp, err := await.NewQP(t.Context(), ours, pd, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	memory, err := await.Register(t.Context(), pd, o.Size, provider.MRAllowLocalRead)
	if err != nil {
		t.Fatal(err)
	}
	o.Local = local
	e := &end{Options: o, adapter: ours, qp: qp, psn: 5, outgoing: memory}
	e.open = []func(){func() { memory.Close(nil, nil) }, qp.Close}
	conn, err := net.Dial("tcp", netip.AddrPortFrom(address, port).String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	err = e.destination().write(conn)
	if err == nil {
		var theirs destination
		if theirs, err = readDestination(conn); err == nil {
			// As ibv_rc_pingpong does: the PSN that an end tells is that of what it sends.
			connector, _ := ours.CreateConnector(nil, nil)
			e.open = append(e.open, func() { connector.Close(nil, nil) })
			err = await.Request(t.Context(), func(completion provider.RequestCompletion, context any) provider.Status {
				return connector.ConnectUnmanaged(qp.QP, provider.UnmanagedConnection{
					Local: local, Remote: theirs.gid, RemoteQPN: theirs.qpn, SendPSN: e.psn, ReceivePSN: theirs.psn,
					MTU: DefaultMTU, AckTimeout: ackTimeout, RetryCount: retryCount,
				}, nil, nil, completion, context)
			})
		}
	}
	if err == nil {
		err = writeDone(conn)
	}
	if err == nil {
		err = e.post()
	}
	if err == nil {
		err = e.sent(t.Context())
	}
	e.close()
	if err != nil {
		t.Fatal(err)
	}
	if got := <-served; got.err != nil || !got.Unacknowledged {
		t.Errorf("got %+v", got)
	}
}

// A client answers for a while, though its server's TCP connection has ended, unless
// it is told to stop.
func TestLinger(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ours, theirs := net.Pipe()
	theirs.Close()
	began := time.Now()
	lingerFor(ctx, ours)
	if took := time.Since(began); took < leastLinger {
		t.Errorf("lingered for %v, want %v at least", took, leastLinger)
	}
	cancel()
	ours, theirs = net.Pipe()
	defer theirs.Close()
	lingerFor(ctx, ours)
	if _, err := ours.Write([]byte{0}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("told to stop, it waited for the server (%v)", err)
	}
}
