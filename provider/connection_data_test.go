package provider_test

import (
	"bytes"
	"testing"

	"github.com/ndklab/ndklab/provider"
)

func TestPrivateData(t *testing.T) {
	// read asks a connector for its private data.
	read := func(t *testing.T, c *provider.Connector) []byte {
		t.Helper()
		length := uint32(0)
		if s := c.GetConnectionData(nil, nil, nil, &length); s != success { // NDK-RL-09
			t.Fatal(s)
		}
		b := bytes.Repeat([]byte{0xEE}, int(length)+1)
		n := length + 1
		if s := c.GetConnectionData(nil, nil, b, &n); s != success || n != length || b[length] != 0xEE { // NDK-RL-10
			t.Fatalf("%v, length %d, want %d", s, n, length)
		}
		short := bytes.Repeat([]byte{0xEE}, 4)
		n = 3
		if s := c.GetConnectionData(nil, nil, short, &n); s != provider.StatusBufferTooSmall || n != length ||
			!bytes.Equal(short[:3], b[:3]) || short[3] != 0xEE { // NDK-RL-11
			t.Fatalf("%v, length %d, %x", s, n, short)
		}
		n = 5
		if s := c.GetConnectionData(nil, nil, nil, &n); s != provider.StatusInvalidParameter {
			t.Fatal(s)
		}
		if s := c.GetConnectionData(nil, nil, short, &n); s != provider.StatusInvalidParameter {
			t.Fatal(s)
		}
		return b[:length]
	}
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
		w.want(client.complete(), success)
		w.settle()
		read(t, client.conn) // NDK-RL-12
		read(t, server.conn)
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

// TestReadLimits: NDK-RL-01 to 06, 08, 12.
func TestReadLimits(t *testing.T) {
	const huge = 1 << 31
	normal, uneven := provider.DefaultAdapterInfo(), provider.DefaultAdapterInfo()
	uneven.MaxInboundReadLimit, uneven.MaxOutboundReadLimit = 5, 7
	for _, c := range []struct {
		name                          string
		info                          provider.AdapterInfo // of both
		clientIn, clientOut           uint32
		serverIn, serverOut           uint32
		in, out                       uint32 // the client's effective limits
		provisionalIn, provisionalOut uint32 // the server's before Accept
	}{
		{"NDK-RL-01 capped to the adapter's", uneven, huge, huge, huge, huge, 5, 5, 5, 5},
		{"NDK-RL-01 capped to the adapter's inbound limit", uneven, 16, 0, 0, 16, 5, 0, 0, 5},
		{"NDK-RL-01 capped to the adapter's outbound limit", uneven, 0, 16, 16, 0, 0, 5, 5, 0},
		{"NDK-RL-02 a peer that reads less", normal, 10, 10, 16, 3, 3, 10, 10, 10},
		{"NDK-RL-03 a peer that answers less", normal, 10, 10, 4, 16, 10, 4, 10, 10},
		{"each its own way", normal, 1, 2, 3, 4, 1, 2, 2, 1},
		{"none", normal, 0, 0, 16, 16, 0, 0, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorldOf(t, addresses, c.info)
			client, server := w.hosts[0], w.hosts[1]
			var accepted, connected async
			limits := func(conn *provider.Connector, in, out uint32) {
				t.Helper()
				var gotIn, gotOut, length uint32
				w.want(conn.GetConnectionData(&gotIn, nil, nil, &length), success) // NDK-RL-08
				w.want(conn.GetConnectionData(nil, &gotOut, nil, &length), provider.StatusInvalidParameter)
				length = 0
				w.want(conn.GetConnectionData(nil, &gotOut, nil, &length), success)
				if gotIn != in || gotOut != out {
					t.Fatalf("limits %d in, %d out, want %d and %d", gotIn, gotOut, in, out)
				}
			}
			server.listen(func(conn *provider.Connector) {
				server.conn = conn
				limits(conn, c.provisionalIn, c.provisionalOut) // NDK-RL-05
				w.want(conn.Accept(server.qp, c.serverIn, c.serverOut, nil, nil, nil, accepted.done, &accepted), provider.StatusPending)
			})
			conn := client.newConnector()
			connected.returned = conn.Connect(client.qp, client.ephemeral(), server.service(), c.clientIn, c.clientOut, nil, connected.done, &connected)
			w.want(w.finish(&connected), success)
			limits(conn, c.in, c.out) // NDK-RL-06
			w.want(conn.CompleteConnect(nil, nil, nil, nil), success)
			w.settle()
			limits(conn, c.in, c.out)        // NDK-RL-12
			limits(server.conn, c.out, c.in) // NDK-RL-04

			// NDK-RL-07: more reads than that are done in turns; with none
			// allowed they are refused (NDK-RL-13).
			for _, from := range []*host{client, server} {
				limit, to := c.out, server
				if from == server {
					limit, to = c.in, client
				}
				for range 40 {
					want := success
					if limit == 0 {
						want = provider.StatusInvalidDeviceState
					}
					w.want(from.qp.Read(nil, from.at(0, 10000), base, to.mr.RemoteToken(), 0), want)
				}
				if limit > 0 {
					for _, r := range from.results(40) {
						w.want(r.Status, success)
					}
				}
				w.silent(from.cq)
			}
		})
	}
}
