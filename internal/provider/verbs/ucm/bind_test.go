package ucm

import (
	"encoding/binary"
	"net/netip"
	"syscall"
	"testing"
	"time"
)

// setInt sets an option to an int.
func (c *channel) setInt(n, name uint32, value int32) error {
	binary.NativeEndian.PutUint32(c.memory.bytes[512:], uint32(value))
	return c.try(cmdSetOption, 0, setOption{Value: base + 512, ID: n, Name: name, Length: 4})
}

// TestBind binds one id after another, of which some listen.
func TestBind(t *testing.T) {
	type one struct {
		address string
		reuse   bool
		only    bool // of its family
		listen  bool
		want    error
	}
	for name, ids := range map[string][]one{
		"the same address":            {{address: "10.0.0.2:7471"}, {address: "10.0.0.2:7471", want: syscall.EADDRINUSE}},
		"another port":                {{address: "10.0.0.2:7471"}, {address: "10.0.0.2:7472"}},
		"another address":             {{address: "10.0.0.2:7471"}, {address: "10.0.0.3:7471"}},
		"the wildcard second":         {{address: "10.0.0.2:7471"}, {address: "0.0.0.0:7471", want: syscall.EADDRNOTAVAIL}},
		"the wildcard first":          {{address: "0.0.0.0:7471"}, {address: "10.0.0.2:7471", want: syscall.EADDRNOTAVAIL}},
		"the wildcard of both":        {{address: "0.0.0.0:7471"}, {address: "[::]:7471", want: syscall.EADDRNOTAVAIL}},
		"the wildcard of each family": {{address: "0.0.0.0:7471"}, {address: "[::]:7471", only: true}},
		"reuse by both":               {{address: "10.0.0.2:7471", reuse: true}, {address: "10.0.0.2:7471", reuse: true}},
		"reuse by one":                {{address: "10.0.0.2:7471"}, {address: "10.0.0.2:7471", reuse: true, want: syscall.EADDRINUSE}},
		"reuse of a listener's": {{address: "10.0.0.2:7471", reuse: true, listen: true},
			{address: "10.0.0.2:7471", reuse: true, want: syscall.EADDRINUSE}},
		"not ours":                 {{address: "10.0.0.9:7471", want: syscall.EADDRNOTAVAIL}},
		"loopback is a wildcard":   {{address: "127.0.0.1:7471"}, {address: "10.0.0.2:7471", want: syscall.EADDRNOTAVAIL}},
		"link-local without scope": {{address: "[fe80::1]:7471", want: syscall.EINVAL}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			for i, o := range ids {
				n := w.server.create(spaceTCP)
				if o.reuse {
					if err := w.server.setInt(n, optionReuse, 1); err != nil {
						t.Fatal(err)
					}
				}
				if o.only {
					if err := w.server.setInt(n, optionFamilyOnly, 1); err != nil {
						t.Fatal(err)
					}
				}
				if err := w.server.bind(n, o.address); err != nil && err != o.want || err == nil && o.want != nil {
					t.Errorf("id %d: %v, not %v", i, err, o.want)
				}
				if o.listen {
					w.server.do(cmdListen, 0, listen{ID: n})
				}
			}
			w.end()
		})
	}
}

// TestBindOthers meets ports of the device's other users.
func TestBindOthers(t *testing.T) {
	w := newWorld(t, 1)
	s := w.server
	s.service.manager.Lock()
	e, ok := s.service.manager.Claim(netip.MustParseAddrPort("10.0.0.3:7471"))
	s.service.manager.Unlock()
	if !ok {
		t.Fatal("no port")
	}
	n := s.create(spaceTCP)
	for _, address := range []string{"10.0.0.3:7471", "0.0.0.0:7471"} {
		if err := s.bind(n, address); err != syscall.EADDRINUSE {
			t.Errorf("%s: %v", address, err)
		}
	}
	if err := s.bind(n, "10.0.0.2:7471"); err != nil {
		t.Error(err)
	}
	if err := s.bind(n, "10.0.0.2:7473"); err != syscall.EINVAL {
		t.Errorf("a second bind: %v", err)
	}
	s.service.manager.Lock()
	s.service.manager.Release(e)
	s.service.manager.Unlock()
	w.end()
}

// TestBindReuse has two ids bound to one address, of which one may listen.
func TestBindReuse(t *testing.T) {
	w := newWorld(t, 1)
	s := w.server
	var ids [2]uint32
	for i := range ids {
		ids[i] = s.create(spaceTCP)
		if err := s.setInt(ids[i], optionReuse, 1); err != nil {
			t.Fatal(err)
		}
		if err := s.bind(ids[i], "10.0.0.2:7471"); err != nil {
			t.Fatal(err)
		}
	}
	s.fails(syscall.EADDRINUSE, cmdListen, 0, listen{ID: ids[0]})
	s.destroy(ids[1], 0)
	s.do(cmdListen, 0, listen{ID: ids[0]})
	client, server := w.connected(ids[0], "10.0.0.2:7471")
	w.disconnect(client, server)
	w.end()
}

// TestLoopbackAddress has a program listen on an address of loopback, which is reached by those of the device, and
// connect to it.
func TestLoopbackAddress(t *testing.T) {
	w := newWorld(t, 1)
	n := w.server.create(spaceTCP)
	w.server.listen(n, "127.0.0.1:7471", 0)
	client, server := w.connected(n, "10.0.0.3:7471")
	w.disconnect(client, server)
	i := w.server.create(spaceTCP)
	w.server.resolve(i, "127.0.0.1:7471")
	w.end()
}

// TestAnyPort has ports chosen, on the wildcard address the same for all.
func TestAnyPort(t *testing.T) {
	w := newWorld(t, 1)
	n := w.server.create(spaceTCP)
	w.server.listen(n, "0.0.0.0:0", 0)
	w.server.do(cmdQueryRoute, 208, query{Response: base, ID: n})
	r := answer[routeResponse](w.server.channel)
	bound, err := addressIn(r.Source[:])
	if err != nil || bound.Port() == 0 || !bound.Addr().IsUnspecified() || r.NodeGUID != [8]byte{} || r.Port != 0 {
		t.Fatalf("bound to %v, %+v", bound, r)
	}
	for _, a := range []string{"10.0.0.2", "10.0.0.3"} {
		client, server := w.connected(n, netip.AddrPortFrom(netip.MustParseAddr(a), bound.Port()).String())
		w.server.do(cmdQueryRoute, 208, query{Response: base, ID: server})
		r := answer[routeResponse](w.server.channel)
		if local, _ := addressIn(r.Source[:]); local.Addr().String() != a || r.Paths != 1 || r.Port != 1 || r.NodeGUID[1] != 2 ||
			r.Routes[0].SGID != gidOf(local.Addr()) || r.Routes[0].DGID != gidOf(clientAddress) || r.Routes[0].MTU != 5 {
			t.Errorf("the connection to %s: %+v", a, r)
		}
		w.disconnect(client, server)
	}
	w.end()
}

// TestWildcardOfBoth has one listener serve both families.
func TestWildcardOfBoth(t *testing.T) {
	w := newWorld(t, 1)
	n := w.server.create(spaceTCP)
	w.server.listen(n, "[::]:7471", 0)
	for _, a := range []string{"10.0.0.2:7471", "10.0.0.3:7471", "[fd00::2]:7471"} {
		client, server := w.connected(n, a)
		w.disconnect(client, server)
	}
	w.end()
}

// TestListensAgain has requests wait for a program that stops to listen and listens again, in the same space or the
// other one, and be refused if it does not.
func TestListensAgain(t *testing.T) {
	for _, first := range []uint16{spaceTCP, spaceUDP} {
		for _, second := range []uint16{spaceTCP, spaceUDP} {
			testListensAgain(t, first, second)
		}
	}
}

func testListensAgain(t *testing.T, first, second uint16) {
	w := newWorld(t, 1)
	c, s := w.client, w.server
	for _, again := range []bool{true, false} {
		listening := s.create(first)
		s.listen(listening, "0.0.0.0:7471", 0)
		s.destroy(listening, 0)
		n := c.create(second)
		c.resolve(n, "10.0.0.2:7471")
		c.do(cmdConnect, 0, connect{ID: n, Param: params(1, "")})
		w.clock.Run(time.Second)
		if e, ok := c.take(); ok {
			t.Fatalf("event %d after a second", e.Event)
		}
		if again {
			listening = s.create(second)
			s.listen(listening, "0.0.0.0:7471", 0)
			w.clock.Run(4 * time.Second)
			server, _ := s.request(listening)
			s.destroy(server, 0)
			s.destroy(listening, 1)
			w.clock.Run(time.Minute)
			c.take() // refused, or unreachable
			continue
		}
		w.clock.Run(time.Minute)
		if _, ok := c.take(); !ok {
			t.Error("no event: the request was not refused")
		}
	}
	w.end()
}
