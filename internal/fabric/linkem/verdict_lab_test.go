package linkem

import (
	"bytes"
	"net"
	"testing"
	"time"

	"github.com/ndklab/ndklab/topology"
	"golang.org/x/sys/unix"
)

// udpAt opens a socket in a node, at a port of its address.
func (n *node) udpAt(tb testing.TB, network string, port int) *net.UDPConn {
	tb.Helper()
	var conn *net.UDPConn
	n.do(tb, func() {
		c, err := net.ListenUDP(network, &net.UDPAddr{IP: n.address(network), Port: port})
		must(tb, err)
		conn = c
	})
	tb.Cleanup(func() { conn.Close() })
	must(tb, conn.SetDeadline(time.Now().Add(patience)))
	return conn
}

// The receiving kernel drops datagrams that were corrupted, but for RoCEv2, which
// has to see them: over IPv6, too, where a datagram without a checksum would be
// dropped. All of it in super-packets. (Of two bits flipped, the checksum of UDP
// would miss some pairs.)
func TestWhoToldACorruptedPacket(t *testing.T) {
	const rounds, size = 30, 200
	for _, c := range []struct {
		name, network string
		port          int
		arrive        bool
	}{
		{"UDP", "udp4", 5000, false},
		{"UDP over IPv6", "udp6", 5000, false},
		{"RoCEv2", "udp4", 4791, true},
		{"RoCEv2 over IPv6", "udp6", 4791, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t, 1500)
			l.attach(t, topology.Impairment{}, topology.Impairment{})
			from, to := l.nodes[0].udp(t, c.network), l.nodes[1].udpAt(t, c.network, c.port)
			meet(t, from, to)
			segment(t, from, size)
			end := l.nodes[0].udp(t, c.network)
			want, in := bytes.Repeat([]byte("packet of 20 bytes. "), 15*size/20), make([]byte, 2000)
			arrived, altered := 0, uint64(0)
			for range rounds {
				must(t, l.engine.Set(deadline(t), linkName, 0, topology.Impairment{Corrupt: topology.Corrupt{Probability: 0.2}}))
				before := l.entered(t)
				_, err := from.WriteTo(want, to.LocalAddr())
				must(t, err)
				eventually(t, func() bool { return l.entered(t) >= before+15 })
				must(t, l.engine.Set(deadline(t), linkName, 0, topology.Impairment{}))
				_, err = end.WriteTo([]byte("end"), to.LocalAddr())
				must(t, err)
				for {
					n, _, err := to.ReadFrom(in)
					must(t, err)
					if n != size {
						break
					}
					if !bytes.Equal(in[:n], want[:size]) {
						altered++
					}
					arrived++
				}
			}
			m, err := l.engine.Measure(deadline(t), nil)
			must(t, err)
			// A packet that the kernel sent by itself may be among those corrupted.
			corrupted := m[linkName][0].Corrupted
			if c.arrive && (arrived != 15*rounds || altered == 0) || !c.arrive && (arrived == 15*rounds || altered > 0) ||
				altered > corrupted || arrived < 15*rounds-int(corrupted) {
				t.Errorf("%d of %d datagrams arrived, %d of them altered; %d were corrupted", arrived, 15*rounds, altered, corrupted)
			}
		})
	}
}

// entered counts the packets that have entered the engine from node 0.
func (l *lab) entered(tb testing.TB) uint64 {
	tb.Helper()
	m, err := l.engine.Measure(deadline(tb), nil)
	must(tb, err)
	return m[linkName][0].Packets
}

// Marked packets arrive with Congestion Experienced, cut out of super-packets
// as others are, and with right checksums, or they would not arrive.
func TestMarksArrive(t *testing.T) {
	for _, network := range []string{"udp4", "udp6"} {
		t.Run(network, func(t *testing.T) {
			l := newLab(t, 1500)
			l.attach(t, topology.Impairment{Rate: 10e6, ECN: topology.ECN{Min: 3000, Max: 3001}}, topology.Impairment{})
			from, to := l.nodes[0].udp(t, network), l.nodes[1].udp(t, network)
			meet(t, from, to)
			set := func(conn *net.UDPConn, level, option, value int) {
				raw, err := conn.SyscallConn()
				must(t, err)
				must(t, raw.Control(func(fd uintptr) { must(t, unix.SetsockoptInt(int(fd), level, option, value)) }))
			}
			if network == "udp4" {
				set(from, unix.SOL_IP, unix.IP_TOS, 2) // ECT(0)
				set(to, unix.SOL_IP, unix.IP_RECVTOS, 1)
			} else {
				set(from, unix.SOL_IPV6, unix.IPV6_TCLASS, 2)
				set(to, unix.SOL_IPV6, unix.IPV6_RECVTCLASS, 1)
			}
			segment(t, from, 1000)
			_, err := from.WriteTo(make([]byte, 15_000), to.LocalAddr())
			must(t, err)
			in, oob := make([]byte, 2000), make([]byte, 100)
			marked := uint64(0)
			for i := range 15 {
				_, n, _, _, err := to.ReadMsgUDP(in, oob)
				must(t, err)
				messages, err := unix.ParseSocketControlMessage(oob[:n])
				must(t, err)
				if len(messages) != 1 {
					t.Fatalf("%d control messages", len(messages))
				}
				switch ecn := messages[0].Data[0] & 3; ecn {
				case 2:
				case 3:
					marked++
				default:
					t.Errorf("datagram %d has ECN %d", i, ecn)
				}
			}
			m, err := l.engine.Measure(deadline(t), nil)
			must(t, err)
			if marked < 5 || marked > 14 || m[linkName][0].Marked != marked {
				t.Errorf("%d of 15 are marked; measured %+v", marked, m[linkName][0])
			}
		})
	}
}
