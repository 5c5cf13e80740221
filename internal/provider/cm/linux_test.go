package cm

import (
	"encoding/binary"
	"net/netip"
	"os"
	"testing"

	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// A captured management datagram.
type captured struct {
	source, destination netip.Addr
	mad                 []byte
}

// capture reads the management datagrams of a capture of two Linux guests
// (classic pcap, Ethernet).
func capture(t *testing.T, name string) []captured {
	t.Helper()
	b, err := os.ReadFile("../roce/testdata/captures/" + name + ".pcap")
	if err != nil {
		t.Fatal(err)
	}
	var all []captured
	for b = b[24:]; len(b) > 16; {
		n := 16 + binary.LittleEndian.Uint32(b[8:])
		ip := b[16+14 : n]
		b = b[n:]
		var c captured
		var udp []byte
		if ip[0]>>4 == 4 {
			c.source = netip.AddrFrom4([4]byte(ip[12:]))
			c.destination = netip.AddrFrom4([4]byte(ip[16:]))
			udp = ip[20:]
		} else {
			c.source = netip.AddrFrom16([16]byte(ip[8:]))
			c.destination = netip.AddrFrom16([16]byte(ip[24:]))
			udp = ip[40:]
		}
		const upToMAD = 8 + 12 + 8 // UDP, BTH, DETH
		if udp[8] == 0x64 && binary.BigEndian.Uint32(udp[8+12:]) == mad.QKey {
			c.mad = udp[upToMAD : upToMAD+mad.Size]
			all = append(all, c)
		}
	}
	return all
}

func decode[M any, P decoder[M]](t *testing.T, c captured) M {
	t.Helper()
	var m M
	if err := P(&m).Decode(c.mad); err != nil {
		t.Fatalf("%T: %v", m, err)
	}
	return m
}

// lone is a host alone on its network, in the place of one of the guests: its
// GUID, its address, and the communication ID that the guest was to use next.
func lone(t *testing.T, addr netip.Addr, guid uint64, id uint32) *host {
	h := newNetwork(t, 1).add(addr.String())
	h.config.GUID = guid
	h.connections.nextID = ID(id)
	h.config.Refuses = func(netip.AddrPort, netip.AddrPort) mad.Reason { return 0 }
	return h
}

func (h *host) replay(c captured) {
	h.Handle(h.net.now(), c.destination, c.source, c.mad)
	h.settle()
}

func sameBytes(t *testing.T, h *host, want captured) {
	t.Helper()
	d := h.sent[len(h.sent)-1]
	if d.Local != want.source || d.Remote != want.destination {
		t.Errorf("sent from %v to %v", d.Local, d.Remote)
	}
	diff(t, attribute(d).String(), want.mad, d.MAD[:])
}

// TestAsLinuxServer puts an Endpoint in the place of the server of a capture, and
// has it say what Linux said, byte for byte.
func TestAsLinuxServer(t *testing.T) {
	for _, name := range []string{"rping", "rping-large", "rping-ipv6"} {
		t.Run(name, func(t *testing.T) {
			c := capture(t, name)
			req, rep := decode[mad.REQ](t, c[0]), decode[mad.REP](t, c[1])
			h := lone(t, c[0].destination, rep.GUID, rep.LocalID)

			h.replay(c[0])
			request := wait[ConnectRequest](h)
			if request.QPN != req.QPN || request.StartingPSN != req.StartingPSN || request.MTU != 3 ||
				request.ResponderResources != 1 || request.InitiatorDepth != 1 ||
				request.RetryCount != 7 || request.RNRRetryCount != 7 || request.AckTimeout != 19 ||
				request.Local != netip.AddrPortFrom(h.addr, 7174) || request.Remote.Addr() != c[0].source {
				t.Errorf("request %+v", request)
			}
			h.must(h.Accept(0, request.ID, AcceptParams{
				QPN:                rep.QPN,
				StartingPSN:        rep.StartingPSN,
				ResponderResources: rep.ResponderResources,
				InitiatorDepth:     rep.InitiatorDepth,
				TargetAckDelay:     rep.TargetAckDelay,
				RNRRetryCount:      rep.RNRRetryCount,
			}))
			h.settle()
			sameBytes(t, h, c[1])

			h.replay(c[2])
			wait[Established](h)
			h.replay(c[3])
			diff(t, "event", Disconnected{ID: request.ID}, wait[Disconnected](h))
			sameBytes(t, h, c[4])
		})
	}
}

// TestAsLinuxClient does the same on the other side. Only the transaction IDs are
// our own: Linux puts a number of the port into their upper half.
func TestAsLinuxClient(t *testing.T) {
	for _, name := range []string{"rping", "rping-large", "rping-ipv6", "disconnect"} {
		t.Run(name, func(t *testing.T) {
			c := capture(t, name)
			req, rep := decode[mad.REQ](t, c[0]), decode[mad.REP](t, c[1])
			h := lone(t, c[0].source, req.GUID, req.LocalID)
			ours := func(c captured, tid uint64) captured {
				c.mad = append([]byte(nil), c.mad...)
				binary.BigEndian.PutUint64(c.mad[8:], tid)
				return c
			}
			var ip mad.IPHeader
			if !ip.Decode(req.PrivateData[:]) {
				t.Fatal("IP header")
			}
			service, _ := mad.ServicePort(req.ServiceID)
			id, err := h.Connect(0, ConnectParams{
				Local:              ip.Source,
				Remote:             netip.AddrPortFrom(c[0].destination, service),
				QPN:                req.QPN,
				StartingPSN:        req.StartingPSN,
				MTU:                req.MTU,
				ResponderResources: req.ResponderResources,
				InitiatorDepth:     req.InitiatorDepth,
				RetryCount:         req.RetryCount,
				RNRRetryCount:      req.RNRRetryCount,
				AckTimeout:         req.Primary.AckTimeout,
			})
			h.must(err)
			h.settle()
			tid := establishTransaction | uint64(id)
			sameBytes(t, h, ours(c[0], tid))

			h.replay(c[1])
			reply := wait[ConnectReply](h)
			if reply.QPN != rep.QPN || reply.StartingPSN != rep.StartingPSN || reply.TargetAckDelay != 15 {
				t.Errorf("reply %+v", reply)
			}
			h.must(h.complete(id))
			sameBytes(t, h, ours(c[2], tid))

			if c[3].source == h.addr {
				h.must(h.disconnect(id))
				sameBytes(t, h, ours(c[3], disconnectTransaction|uint64(id)))
				h.replay(c[4])
				diff(t, "event", DisconnectDone{ID: id}, wait[DisconnectDone](h))
			} else {
				h.replay(c[3])
				diff(t, "event", Disconnected{ID: id}, wait[Disconnected](h))
				sameBytes(t, h, c[4])
			}
		})
	}
}

// TestAsLinuxWithoutListener refuses a request as Linux did.
func TestAsLinuxWithoutListener(t *testing.T) {
	c := capture(t, "reject")
	h := lone(t, c[0].destination, 1, 1)
	h.config.Refuses = func(netip.AddrPort, netip.AddrPort) mad.Reason { return mad.ReasonInvalidServiceID }
	h.replay(c[0])
	sameBytes(t, h, c[1])

	// And understands it when Linux does.
	req := decode[mad.REQ](t, c[0])
	h = lone(t, c[0].source, req.GUID, req.LocalID)
	id, err := h.Connect(0, ConnectParams{
		Local: netip.AddrPortFrom(c[0].source, 1), Remote: netip.AddrPortFrom(c[0].destination, 9999), MTU: 3,
	})
	h.must(err)
	h.settle()
	h.replay(c[1])
	diff(t, "event", Rejected{ID: id, Reason: mad.ReasonInvalidServiceID}, wait[Rejected](h))
}
