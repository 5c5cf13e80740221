package linkem

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"

	"github.com/ndklab/ndklab/topology"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// Traffic other than RDMA crosses an impaired link as well: pings and TCP, over IPv4
// and IPv6, and the ARP and neighbour discovery that they begin with. Faults, which
// are for RDMA packets, do not meet it.
func TestPlainTrafficCrosses(t *testing.T) {
	settings := topology.Impairment{
		Delay:     time.Millisecond,
		Jitter:    topology.Jitter{Spread: 200 * time.Microsecond, Distribution: topology.Normal},
		Loss:      topology.Loss{Every: 50},
		Duplicate: 0.02,
		Reorder:   topology.Reorder{Probability: 0.02, Depth: 3},
		Rate:      200_000_000,
		ECN:       topology.ECN{Min: 64 << 10, Max: 128 << 10},
		Faults:    []topology.Fault{{Action: topology.Drop}},
	}
	for _, family := range []string{"4", "6"} {
		t.Run("IPv"+family, func(t *testing.T) {
			l := newLab(t, 1500)
			l.attach(t, settings, settings)
			pings(t, l, family, 20)
			streams(t, l, "tcp"+family, 1<<20)
			m, err := l.engine.Measure(deadline(t), nil)
			must(t, err)
			there, back := m[linkName][0], m[linkName][1]
			if there.Faulted > 0 || there.Dropped == 0 || there.Duplicated == 0 || there.Reordered == 0 || back.Faulted > 0 {
				t.Errorf("there %+v, back %+v", there, back)
			}
		})
	}
}

// pings has node 1's kernel answer node 0's echo requests, each of which is sent
// again until its answer is there.
func pings(t *testing.T, l *lab, family string, count int) {
	t.Helper()
	network, protocol := "ip4:icmp", 1
	var request, reply icmp.Type = ipv4.ICMPTypeEcho, ipv4.ICMPTypeEchoReply
	if family == "6" {
		network, protocol = "ip6:ipv6-icmp", 58
		request, reply = ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply
	}
	var conn net.PacketConn
	l.nodes[0].do(t, func() {
		var err error
		conn, err = net.ListenPacket(network, l.nodes[0].address(family).String())
		must(t, err)
	})
	defer conn.Close()
	to := &net.IPAddr{IP: l.nodes[1].address(family)}
	in, data := make([]byte, 2000), bytes.Repeat([]byte("ping"), 100)
	// answered waits for the answer to a request, not for long.
	answered := func(seq int) bool {
		must(t, conn.SetReadDeadline(time.Now().Add(200*time.Millisecond)))
		for {
			n, _, err := conn.ReadFrom(in)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return false
			}
			must(t, err)
			m, err := icmp.ParseMessage(protocol, in[:n])
			must(t, err)
			if echo, ok := m.Body.(*icmp.Echo); ok && m.Type == reply && echo.Seq == seq {
				if !bytes.Equal(echo.Data, data) {
					t.Fatalf("the answer to ping %d was altered", seq)
				}
				return true
			}
		}
	}
	for seq := range count {
		m := icmp.Message{Type: request, Body: &icmp.Echo{ID: 1, Seq: seq, Data: data}}
		packet, err := m.Marshal(nil) // the kernel adds the checksum of ICMPv6
		must(t, err)
		for until := time.Now().Add(patience); ; {
			if time.Now().After(until) {
				t.Fatalf("no answer to ping %d", seq)
			}
			_, err := conn.WriteTo(packet, to)
			must(t, err)
			if answered(seq) {
				break
			}
		}
	}
}

// streams sends bytes from node 0 to node 1 over a TCP connection, and wants them
// to arrive unaltered.
func streams(t *testing.T, l *lab, network string, size int) {
	t.Helper()
	var listener net.Listener
	l.nodes[1].do(t, func() {
		var err error
		listener, err = net.Listen(network, net.JoinHostPort(l.nodes[1].address(network).String(), "0"))
		must(t, err)
	})
	defer listener.Close()
	data := make([]byte, size)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(data) // never fails
	received := make(chan []byte, 1)
	go func() {
		defer close(received)
		conn, err := listener.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		all, err := io.ReadAll(conn)
		if err != nil {
			t.Error(err)
		}
		received <- all
	}()
	l.nodes[0].do(t, func() {
		conn, err := net.DialTimeout(network, listener.Addr().String(), patience)
		must(t, err)
		defer conn.Close()
		must(t, conn.SetDeadline(time.Now().Add(patience)))
		_, err = conn.Write(data)
		must(t, err)
	})
	if !bytes.Equal(<-received, data) {
		t.Error("the stream was altered")
	}
}
