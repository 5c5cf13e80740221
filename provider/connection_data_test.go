package provider_test

import (
	"bytes"
	"testing"

	"github.com/ndklab/ndklab/provider"
)

// read asks a connector for its private data.
func read(t *testing.T, c *provider.Connector) []byte {
	t.Helper()
	length := uint32(0)
	if s := c.GetConnectionData(nil, nil, nil, &length); s != success {
		t.Fatal(s)
	}
	b := make([]byte, length)
	if s := c.GetConnectionData(nil, nil, b, &length); s != success {
		t.Fatal(s)
	}
	return b
}

// TestConnectionData: the table in ndkpi.md 4.10, for what comes with a request,
// a consent and a refusal (T8, T10), and for as long as the connector is there (T9).
func TestConnectionData(t *testing.T) {
	check := func(t *testing.T, when string, c *provider.Connector, rds uint32, data string) {
		want := make([]byte, rds)
		copy(want, data)
		t.Run("NDK-RL-09 "+when+", the size alone", func(t *testing.T) {
			length := uint32(0)
			if s := c.GetConnectionData(nil, nil, nil, &length); s != success || length != rds {
				t.Fatalf("%v, length %d, want %d", s, length, rds)
			}
		})
		t.Run("NDK-RL-10 "+when+", room enough", func(t *testing.T) {
			for _, given := range []uint32{rds, rds + 1} {
				b := bytes.Repeat([]byte{0xEE}, int(given)+1)
				length := given
				if s := c.GetConnectionData(nil, nil, b, &length); s != success || length != rds || !bytes.Equal(b[:rds], want) {
					t.Fatalf("%v, length %d, %q", s, length, b)
				}
				if len(bytes.Trim(b[rds:], "\xEE")) > 0 {
					t.Fatal("more was written")
				}
			}
		})
		t.Run("NDK-RL-11 "+when+", too little room", func(t *testing.T) {
			for _, given := range []uint32{0, 1, rds - 1} {
				b := bytes.Repeat([]byte{0xEE}, int(rds))
				length := given
				if s := c.GetConnectionData(nil, nil, b, &length); s != provider.StatusBufferTooSmall || length != rds {
					t.Fatalf("%v, length %d, want %d", s, length, rds)
				}
				if !bytes.Equal(b[:given], want[:given]) || len(bytes.Trim(b[given:], "\xEE")) > 0 {
					t.Fatalf("with room for %d: %q", given, b)
				}
			}
		})
		t.Run("R "+when+", a length and no buffer, or a shorter one", func(t *testing.T) {
			for _, b := range [][]byte{nil, make([]byte, 4)} {
				length := uint32(5)
				if s := c.GetConnectionData(nil, nil, b, &length); s != provider.StatusInvalidParameter {
					t.Fatal(s)
				}
			}
		})
	}
	const caller, callee, refusal = 56, 196, 148 // roce.md 15.2
	w := newWorld(t)
	client, server := w.hosts[0], w.hosts[1]
	var accepted *async
	l := server.listen(func(c *provider.Connector) {
		check(t, "a request", c, caller, "hello")
		accepted = server.accept(c)
	})
	client.conn = client.newConnector()
	w.want(w.finish(client.dial(client.conn, server)), success)
	check(t, "a consent", client.conn, callee, "welcome")
	check(t, "a request, after Accept", server.conn, caller, "hello")
	w.want(client.complete(), success)
	w.want(w.finish(accepted), success)
	check(t, "a consent, connected", client.conn, callee, "welcome")
	check(t, "a request, connected", server.conn, caller, "hello")
	w.want(w.finish(client.disconnect()), success)
	w.settle()
	check(t, "a consent, disconnected", client.conn, callee, "welcome")
	check(t, "a request, disconnected", server.conn, caller, "hello")

	w.finish(server.close(server.conn))
	w.finish(server.close(l))
	server.listen(func(c *provider.Connector) { w.want(c.Reject([]byte("go away")), success) })
	client.qp = client.newQP()
	c := client.newConnector()
	w.want(w.finish(client.dial(c, server)), refused)
	check(t, "a refusal", c, refusal, "go away")
}

func TestPrivateData(t *testing.T) {
	prefix := func(t *testing.T, got, want []byte) {
		t.Helper()
		if !bytes.HasPrefix(got, want) || len(bytes.Trim(got[len(want):], "\x00")) > 0 {
			t.Fatalf("got %q, want %q and zeros", got, want)
		}
	}
	t.Run("NDK-CONN-23 NDK-CONN-24 with Connect and Accept", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.hosts[0], w.hosts[1]
		server.listen(func(c *provider.Connector) {
			prefix(t, read(t, c), []byte("hello"))
			server.accept(c)
		})
		client.conn = client.newConnector()
		length := uint32(0)
		w.want(client.conn.GetConnectionData(nil, nil, nil, &length), provider.StatusConnectionInvalid)
		w.want(w.finish(client.dial(client.conn, server)), success)
		prefix(t, read(t, client.conn), []byte("welcome"))
	})
	t.Run("NDK-CONN-23 NDK-CONN-24 any bytes, to the last", func(t *testing.T) {
		for _, of := range []func(i, n int) byte{
			func(i, n int) byte { return byte(i) }, // zero first
			func(i, n int) byte { return byte(n - i) },
			func(i, n int) byte { return byte(i % 2) },
			func(i, n int) byte { return 0 },
			func(i, n int) byte { return 0xFF },
		} {
			w := newWorld(t)
			client, server := w.hosts[0], w.hosts[1]
			caller, callee := make([]byte, client.Info().MaxCallerData), make([]byte, client.Info().MaxCalleeData)
			for _, data := range [][]byte{caller, callee} {
				for i := range data {
					data[i] = of(i, len(data))
				}
			}
			var accepted, connected async
			server.listen(func(c *provider.Connector) {
				server.conn = c
				prefix(t, read(t, c), caller)
				w.want(c.Accept(server.qp, 1, 1, callee, nil, nil, accepted.done, &accepted), provider.StatusPending)
			})
			c := client.newConnector()
			connected.returned = c.Connect(client.qp, client.ephemeral(), server.service(), 1, 1, caller, connected.done, &connected)
			w.want(w.finish(&connected), success)
			prefix(t, read(t, c), callee)
			w.want(c.CompleteConnect(nil, nil, nil, nil), success)
			w.want(w.finish(&accepted), success)
			prefix(t, read(t, c), callee)
			prefix(t, read(t, server.conn), caller)
		}
	})
	t.Run("NDK-CONN-25 with Reject", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.hosts[0], w.hosts[1]
		l := server.listen(func(c *provider.Connector) { w.want(c.Reject([]byte("go away")), success) })
		c := client.newConnector()
		w.want(w.finish(client.dial(c, server)), refused)
		prefix(t, read(t, c), []byte("go away"))
		// A later refusal by nobody in particular says nothing.
		l.ControlConnectEvents(true)
		w.want(w.finish(client.dial(c, server)), refused)
		length := uint32(0)
		w.want(c.GetConnectionData(nil, nil, nil, &length), provider.StatusConnectionInvalid)
	})
	t.Run("NDK-CONN-26 NDK-CONN-27 lengths", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.hosts[0], w.hosts[1]
		info := client.Info()
		caller, callee := make([]byte, info.MaxCallerData+1), make([]byte, info.MaxCalleeData+1)
		for i := range callee {
			callee[i] = 0xAA
		}
		copy(caller, callee)
		a := &async{}
		server.listen(func(c *provider.Connector) {
			if got := read(t, c); !bytes.Equal(got, caller[:info.MaxCallerData]) {
				t.Errorf("got %x", got)
			}
			w.want(c.Accept(server.qp, 1, 1, callee, nil, nil, a.done, a), provider.StatusInvalidBufferSize)
			w.want(c.Reject(callee), provider.StatusInvalidBufferSize)
			w.want(c.Accept(server.qp, 1, 1, callee[1:], nil, nil, a.done, a), provider.StatusPending)
		})
		c := client.newConnector()
		connect := &async{}
		w.want(c.Connect(client.qp, client.ephemeral(), server.service(), 1, 1, caller, connect.done, connect), provider.StatusInvalidBufferSize)
		connect.returned = c.Connect(client.qp, client.ephemeral(), server.service(), 1, 1, caller[1:], connect.done, connect)
		w.want(w.finish(connect), success)
		prefix(t, read(t, c), callee[1:])
	})
}
