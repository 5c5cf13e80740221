package ucm

import (
	"fmt"
	"net/netip"
	"syscall"
	"testing"

	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

func udOf(e eventResponse) udParam {
	p, err := decoded[udParam](e.Param[:])
	if err != nil {
		panic(err)
	}
	return p
}

func heardUD(p udParam) string {
	return heard(connParam{PrivateData: p.PrivateData, PrivateDataLength: p.PrivateDataLength})
}

// TestDatagrams looks a service up, on a bad path, beside one of connections on the same port.
func TestDatagrams(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(t, seed)
			w.path.Loss, w.path.Duplicate = 0.2, 0.2
			c, s := w.client, w.server
			connections := s.create(spaceTCP)
			s.listen(connections, "0.0.0.0:7174", 0)
			listening := s.create(spaceUDP)
			s.listen(listening, "0.0.0.0:7174", 2)

			n := c.create(spaceUDP)
			c.resolve(n, "10.0.0.2:7174")
			if a := c.attributes(n, qpInit); a.Mask != 0x71 || a.QKey != 0x01234567 || a.Port != 1 {
				t.Errorf("attributes %+v", a)
			}
			c.do(cmdConnect, 0, connect{ID: n, Param: params(1, "hello")})
			server, e := s.request(listening)
			if p := udOf(e); heardUD(p) != "hello" || p.PrivateDataLength != mad.ConsumerLookUpData {
				t.Errorf("request %+v", p)
			}
			s.do(cmdAccept, 0, accept{ID: server, UID: uint64(server) + 1000, Param: params(0x77, "welcome")})
			e = c.expect(n, eventEstablished)
			p := udOf(e)
			if p.QPN != 0x77 || p.QKey != 0x01234567 || heardUD(p) != "welcome" || p.PrivateDataLength != mad.SIDRREPPrivateData ||
				p.AH.DGID != gidOf(serverAddress) || p.AH.Global != 1 || p.AH.Port != 1 || p.AH.HopLimit != 64 {
				t.Errorf("answer %+v", p)
			}
			s.fails(syscall.EINVAL, cmdAccept, 0, accept{ID: server, Param: params(0x77, "")})
			client, peer := w.connected(connections, "10.0.0.2:7174")
			w.disconnect(client, peer)
			c.do(cmdDisconnect, 0, disconnect{n})
			w.end()
		})
	}
}

// TestDatagramsRefused looks up what there is not, and what does not answer.
func TestDatagramsRefused(t *testing.T) {
	w := newWorld(t, 1)
	c, s := w.client, w.server
	listening := s.create(spaceUDP)
	s.listen(listening, "10.0.0.2:7174", 0)
	ask := func(to string) uint32 {
		n := c.create(spaceUDP)
		c.resolve(n, to)
		c.do(cmdConnect, 0, connect{ID: n, Param: params(1, "")})
		return n
	}
	n := ask("10.0.0.2:7175")
	if e := c.expect(n, eventUnreachable); e.Status != uint32(mad.SIDRUnsupported) {
		t.Errorf("no service: status %d", e.Status)
	}
	n = ask("10.0.0.2:7174")
	server, _ := s.request(listening)
	no := reject{ID: server}
	no.PrivateData, no.PrivateDataLength = said("no")
	s.do(cmdReject, 0, no)
	if e := c.expect(n, eventUnreachable); e.Status != uint32(mad.SIDRReject) || heardUD(udOf(e)) != "no" {
		t.Errorf("rejected: status %d", e.Status)
	}
	n = ask("10.0.0.2:7174")
	server, _ = s.request(listening)
	s.destroy(server, 0)
	if e := c.expect(n, eventUnreachable); e.Status != uint32(mad.SIDRReject) {
		t.Errorf("destroyed: status %d", e.Status)
	}
	w.path.Down = true
	n = ask("10.0.0.2:7174")
	if e := c.expect(n, eventUnreachable); e.Status != failure(syscall.ETIMEDOUT) {
		t.Errorf("no answer: status %d", int32(e.Status))
	}
	n = c.create(spaceUDP)
	c.resolve(n, "10.0.0.2:7174")
	p := params(1, "")
	p.PrivateDataLength = 181
	c.fails(syscall.EINVAL, cmdConnect, 0, connect{ID: n, Param: p})
	w.end()
}

// TestMulticast joins groups and leaves them.
func TestMulticast(t *testing.T) {
	for name, group := range map[string]string{"IPv4": "239.1.2.3:0", "IPv6": "[ff0e::1]:0"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			c := w.client
			address := netip.MustParseAddrPort(group).Addr()
			n := c.create(spaceUDP)
			local := "10.0.0.1:0"
			if address.Is6() {
				local = "[fd00::1]:0"
			}
			join := joinIPMulticast{Response: base, UID: 5, ID: n, Address: sockaddr6(group)}
			c.fails(syscall.EINVAL, cmdJoinIPMulticast, 4, join)
			c.do(cmdResolveIP, 0, resolveIP{ID: n, Source: sockaddr6(local), Destination: sockaddr6(group)})
			c.expect(n, eventAddrResolved)
			c.do(cmdJoinIPMulticast, 4, join)
			member := answer[idResponse](c.channel).ID
			e := c.next()
			p := udOf(e)
			if e.ID != member || e.UID != 5 || e.Event != eventMulticastJoin || p.QPN != 0xFFFFFF || p.QKey != 0x01234567 ||
				p.AH.DGID != gidOf(address) || p.AH.Global != 1 || p.AH.HopLimit != 64 {
				t.Errorf("event %+v: %+v", e, p)
			}
			long := joinMulticast{Response: base, UID: 6, ID: n, Flags: joinSendOnly, Address: storage(group)}
			long.Size = uint16(sizeOf(long.Address[:]))
			c.do(cmdJoinMulticast, 4, long)
			sender := answer[idResponse](c.channel).ID
			c.do(cmdLeaveMulticast, 4, destroyID{Response: base, ID: sender})
			c.quiet()
			c.do(cmdLeaveMulticast, 4, destroyID{Response: base, ID: member})
			if got := answer[eventsResponse](c.channel).EventsReported; got != 1 {
				t.Errorf("%d events reported", got)
			}
			c.fails(syscall.ENOENT, cmdLeaveMulticast, 4, destroyID{Response: base, ID: member})
			long.Flags = 2
			c.fails(syscall.EINVAL, cmdJoinMulticast, 4, long)
			join.Address = sockaddr6("10.0.0.2:0")
			c.fails(syscall.EINVAL, cmdJoinIPMulticast, 4, join)
			join.Address, join.Response = sockaddr6(group), 1
			c.fails(syscall.EFAULT, cmdJoinIPMulticast, 4, join)
			join.Response = base
			c.do(cmdJoinIPMulticast, 4, join)
			c.destroy(n, 2)
			w.end()
		})
	}
}
