package ucm

import (
	"encoding/binary"
	"net/netip"
	"syscall"
	"testing"
	"time"
)

// TestErrors tries what no channel takes.
func TestErrors(t *testing.T) {
	w := newWorld(t, 1)
	c := w.client
	n := c.create(spaceTCP)
	bound := c.create(spaceTCP)
	other := c.another()
	short := command(cmdCreateID, 4, createID{Response: base, PortSpace: spaceTCP})
	for name, cmd := range map[string]struct {
		bytes []byte
		want  error
	}{
		"nothing":               {nil, syscall.EINVAL},
		"half a header":         {make([]byte, 7), syscall.EINVAL},
		"more than there is":    {short[:len(short)-1], syscall.EINVAL},
		"less than it needs":    {command(cmdCreateID, 4, [23]byte{}), syscall.EINVAL},
		"an unknown command":    {command(commandCount, 0, [64]byte{}), syscall.EINVAL},
		"GET_OPTION":            {command(cmdGetOption, 0, [64]byte{}), syscall.ENOSYS},
		"no room":               {command(cmdCreateID, 3, createID{Response: base, PortSpace: spaceTCP}), syscall.ENOSPC},
		"a bad address":         {command(cmdCreateID, 4, createID{Response: 1, PortSpace: spaceTCP}), syscall.EFAULT},
		"no port space":         {command(cmdCreateID, 4, createID{Response: base}), syscall.EINVAL},
		"IPoIB":                 {command(cmdCreateID, 4, createID{Response: base, PortSpace: spaceIPoIB}), syscall.EOPNOTSUPP},
		"no id":                 {command(cmdListen, 0, listen{ID: 77}), syscall.ENOENT},
		"AF_IB":                 {command(cmdBind, 0, bind{ID: n, Size: 48, Address: [sockaddrStorage]byte{familyIB}}), syscall.EAFNOSUPPORT},
		"AF_UNIX":               {command(cmdBindIP, 0, bindIP{ID: n, Address: [sockaddrIn6]byte{syscall.AF_UNIX}}), syscall.EAFNOSUPPORT},
		"another family's size": {command(cmdBind, 0, bind{ID: n, Size: 28, Address: storage("10.0.0.1:1")}), syscall.EINVAL},
		"an early route":        {command(cmdResolveRoute, 0, resolveRoute{ID: n}), syscall.EINVAL},
		"an early connect":      {command(cmdConnect, 0, connect{ID: n, Param: params(1, "")}), syscall.EINVAL},
		"no parameters":         {command(cmdConnect, 0, connect{ID: n}), syscall.EINVAL},
		"an early accept":       {command(cmdAccept, 0, accept{ID: n}), syscall.EINVAL},
		"an early reject":       {command(cmdReject, 0, reject{ID: n}), syscall.EINVAL},
		"an early disconnect":   {command(cmdDisconnect, 0, disconnect{n}), syscall.EINVAL},
		"an early notice":       {command(cmdNotify, 0, notify{n, communicationEstablished}), syscall.EINVAL},
		"attributes of none":    {command(cmdInitQPAttr, 144, initQPAttr{Response: base, ID: n, QPState: qpInit}), syscall.EINVAL},
		"no event":              {command(cmdGetEvent, EventSize, getEvent{base}), syscall.EAGAIN},
		"an unknown query":      {command(cmdQuery, 300, query{Response: base, ID: n, Option: 3}), syscall.ENOSYS},
		"an unknown option":     {command(cmdSetOption, 0, setOption{Value: base, ID: n, Name: 4, Length: 1}), syscall.ENOSYS},
		"a path":                {command(cmdSetOption, 0, setOption{Value: base, ID: n, Level: 1, Name: 1, Length: 72}), syscall.ENOSYS},
		"an option's size":      {command(cmdSetOption, 0, setOption{Value: base, ID: n, Length: 4}), syscall.EINVAL},
		"an option nowhere":     {command(cmdSetOption, 0, setOption{Value: 8, ID: n, Length: 1}), syscall.EFAULT},
		"no channel":            {command(cmdMigrateID, 4, migrateID{Response: base, ID: n, Descriptor: 77}), syscall.ENOENT},
		"another family":        {command(cmdResolveIP, 0, resolveIP{ID: bound, Destination: sockaddr6("[2001:db8::1]:1"), Source: sockaddr6("10.0.0.1:0")}), syscall.EINVAL},
	} {
		if n, err := c.kernel.Command(cmd.bytes); err != cmd.want || n != 0 {
			t.Errorf("%s: %d, %v, not %v", name, n, err, cmd.want)
		}
	}
	other.fails(syscall.EINVAL, cmdListen, 0, listen{ID: n})
	other.fails(syscall.EINVAL, cmdDestroyID, 4, destroyID{Response: base, ID: n})
	c.kernel.Close()
	c.fails(syscall.EBADF, cmdListen, 0, listen{ID: n})
	if len(c.service.ids) != 0 {
		t.Errorf("%d ids are left", len(c.service.ids))
	}
	w.end()
}

// TestPrivateData tries the sizes that fit and those that do not.
func TestPrivateData(t *testing.T) {
	w := newWorld(t, 1)
	c, s := w.client, w.server
	listening, n := w.resolved()
	p := params(1, "")
	p.PrivateDataLength = 57
	c.fails(syscall.EINVAL, cmdConnect, 0, connect{ID: n, Param: p})
	p.PrivateDataLength = 56
	c.do(cmdConnect, 0, connect{ID: n, Param: p})
	server, _ := s.request(listening)
	s.fails(syscall.EINVAL, cmdReject, 0, reject{ID: server, PrivateDataLength: 149})
	p.PrivateDataLength = 197
	s.fails(syscall.EINVAL, cmdAccept, 0, accept{ID: server, UID: 5, Param: p})
	c.expect(n, eventRejected) // what cannot be accepted is refused
	w.end()
}

// TestBacklog has more requests than a listener has room for: they come later.
func TestBacklog(t *testing.T) {
	w := newWorld(t, 1)
	c, s := w.client, w.server
	listening := s.create(spaceTCP)
	s.listen(listening, "10.0.0.2:7471", 2)
	const clients = 5
	for range clients {
		n := c.create(spaceTCP)
		c.resolve(n, "10.0.0.2:7471")
		c.do(cmdConnect, 0, connect{ID: n, Param: params(c.qpn, "")})
		c.qpn++
	}
	w.clock.Run(time.Second)
	if got := len(s.kernel.events); got != 2 {
		t.Errorf("%d requests wait", got)
	}
	for range clients {
		s.request(listening)
	}
	s.destroy(listening, clients)
	w.end()
}

// TestAnnouncements has a descriptor be full for a time.
func TestAnnouncements(t *testing.T) {
	w := newWorld(t, 1)
	c := w.client
	n := c.create(spaceTCP)
	c.deaf = true
	c.do(cmdResolveIP, 0, resolveIP{ID: n, Destination: sockaddr6("10.0.0.2:1")})
	c.deaf = false
	c.do(cmdResolveRoute, 0, resolveRoute{ID: n})
	c.expect(n, eventAddrResolved)
	c.expect(n, eventRouteResolved)
	if c.announcements != 0 {
		t.Errorf("%d announcements too many", c.announcements)
	}
	w.end()
}

// TestDestroyDropsEvents has events that nobody took go with their id.
func TestDestroyDropsEvents(t *testing.T) {
	w := newWorld(t, 1)
	c := w.client
	n := c.create(spaceTCP)
	c.do(cmdResolveIP, 0, resolveIP{ID: n, Destination: sockaddr6("10.0.0.2:1")})
	c.do(cmdResolveRoute, 0, resolveRoute{ID: n})
	c.expect(n, eventAddrResolved)
	c.destroy(n, 1)
	if c.announcements != 0 {
		t.Errorf("%d announcements of what is gone", c.announcements)
	}
	w.end()
}

// TestMigrate moves ids between channels, with the events that wait: a listener's bring their requests along.
func TestMigrate(t *testing.T) {
	w := newWorld(t, 1)
	c, s := w.client, w.server
	listening, n := w.connecting()
	w.clock.Run(time.Second)

	to := s.another()
	move := func(to *channel, from *Channel, id, events uint32) {
		t.Helper()
		to.do(cmdMigrateID, 4, migrateID{Response: base, ID: id, Descriptor: from.descriptor})
		if got := answer[eventsResponse](to).EventsReported; got != events {
			t.Errorf("%d events reported, not %d", got, events)
		}
	}
	move(to, s.kernel, listening, 0)
	move(to, to.kernel, listening, 0)
	s.fails(syscall.EINVAL, cmdListen, 0, listen{ID: listening})
	s.quiet()
	server, _ := to.request(listening)
	to.do(cmdAccept, 0, accept{ID: server, UID: uint64(server) + 1000, Param: params(2, "")})
	move(s.channel, to.kernel, server, 0)
	c.expect(n, eventConnectResponse)
	c.do(cmdAccept, 0, accept{ID: n})
	s.expect(server, eventEstablished)
	c.do(cmdDisconnect, 0, disconnect{n})
	s.expect(server, eventDisconnected)
	move(to, s.kernel, server, 2)
	to.destroy(server, 2)
	to.destroy(listening, 1)
	w.end()
}

// TestOptions sets what has an effect on attributes.
func TestOptions(t *testing.T) {
	w := newWorld(t, 1)
	c, s := w.client, w.server
	listening := s.create(spaceTCP)
	s.listen(listening, "10.0.0.2:7471", 0)
	n := c.create(spaceTCP)
	for name, value := range map[uint32]byte{optionTOS: 0x20, optionAckTimeout: 14} {
		c.memory.bytes[512] = value
		c.do(cmdSetOption, 0, setOption{Value: base + 512, ID: n, Name: name, Length: 1})
	}
	c.memory.bytes[512] = 32
	c.fails(syscall.EINVAL, cmdSetOption, 0, setOption{Value: base + 512, ID: n, Name: optionAckTimeout, Length: 1})
	c.resolve(n, "10.0.0.2:7471")
	if err := c.setInt(n, optionFamilyOnly, 1); err != syscall.EINVAL {
		t.Errorf("family only of a bound id: %v", err)
	}
	c.do(cmdConnect, 0, connect{ID: n, Param: params(1, "")})
	server, _ := s.request(listening)
	if a := s.attributes(server, qpRTS); a.Timeout != 16 {
		t.Errorf("the peer's timeout is %d", a.Timeout)
	}
	s.do(cmdAccept, 0, accept{ID: server, UID: 1, Param: params(2, "")})
	c.expect(n, eventConnectResponse)
	if rtr, rts := c.attributes(n, qpRTR), c.attributes(n, qpRTS); rtr.AH.TrafficClass != 0x20 || rts.Timeout != 14 {
		t.Errorf("traffic class %#x, timeout %d", rtr.AH.TrafficClass, rts.Timeout)
	}
	w.end()
}

// TestResolve tries destinations.
func TestResolve(t *testing.T) {
	w := newWorld(t, 1)
	c := w.client
	for name, r := range map[string]struct {
		source, destination string
		want                error
		local               string
	}{
		"no source":         {"", "10.0.0.2:7471", nil, "10.0.0.1"},
		"a source":          {"10.0.0.1:5000", "10.0.0.2:7471", nil, "10.0.0.1"},
		"the wildcard":      {"0.0.0.0:5001", "10.0.0.2:7471", nil, "10.0.0.1"},
		"IPv6":              {"", "[fd00::2]:7471", nil, "fd00::1"},
		"another's address": {"10.0.0.2:0", "10.0.0.2:7471", syscall.EADDRNOTAVAIL, ""},
		"two families":      {"10.0.0.1:0", "[fd00::2]:7471", syscall.EINVAL, ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := c.create(spaceTCP)
			cmd := resolveIP{ID: n, Destination: sockaddr6(r.destination)}
			long := resolveAddr{ID: n, DestinationSize: uint16(sizeOf(cmd.Destination[:])), Destination: storage(r.destination)}
			if r.source != "" {
				cmd.Source, long.Source = sockaddr6(r.source), storage(r.source)
				long.SourceSize = uint16(sizeOf(cmd.Source[:]))
			}
			if err := c.try(cmdResolveIP, 0, cmd); err != r.want {
				t.Fatalf("%v, not %v", err, r.want)
			}
			if r.want == nil {
				c.expect(n, eventAddrResolved)
				c.do(cmdQuery, 280, query{Response: base, ID: n, Option: queryAddr})
				a := answer[addrResponse](c.channel)
				local, _ := addressIn(a.Source[:])
				remote, _ := addressIn(a.Destination[:])
				if local.Addr().String() != r.local || local.Port() == 0 || remote != netip.MustParseAddrPort(r.destination) || a.Port != 1 {
					t.Errorf("%v to %v", local, remote)
				}
			}
			c.do(cmdDestroyID, 4, destroyID{Response: base, ID: n})
			long.ID = c.create(spaceTCP)
			if err := c.try(cmdResolveAddr, 0, long); err != r.want {
				t.Fatalf("RESOLVE_ADDR: %v, not %v", err, r.want)
			}
			c.do(cmdDestroyID, 4, destroyID{Response: base, ID: long.ID})
		})
	}
	w.end()
}

// TestQueryPath asks for the path in both forms.
func TestQueryPath(t *testing.T) {
	w := newWorld(t, 1)
	c := w.client
	n := c.create(spaceTCP)
	c.do(cmdQuery, 80, query{Response: base, ID: n, Option: queryPath})
	if p := answer[pathResponse](c.channel); p.Paths != 0 {
		t.Errorf("%d paths before there is a route", p.Paths)
	}
	c.resolve(n, "10.0.0.2:7471")
	c.do(cmdQuery, 80, query{Response: base, ID: n, Option: queryPath})
	p := c.memory.bytes[:80]
	if binary.NativeEndian.Uint32(p) != 1 || [16]byte(p[16+8:]) != gidOf(serverAddress) || [16]byte(p[16+24:]) != gidOf(clientAddress) ||
		p[16+54] != 2<<6|5 || p[16+49] != 0x81 {
		t.Errorf("path % x", p)
	}
	c.fails(syscall.ENOSPC, cmdQuery, 7, query{Response: base, ID: n, Option: queryPath})
	c.do(cmdQuery, 280, query{Response: base, ID: n, Option: queryGID})
	if a := answer[addrResponse](c.channel); family(a.Source[:]) != familyIB || [16]byte(a.Destination[8:]) != gidOf(serverAddress) ||
		binary.BigEndian.Uint64(a.Destination[24:]) != 0x0106<<16|7471 {
		t.Errorf("GIDs %+v", a)
	}
	w.end()
}

// TestFail tells every id that has an address.
func TestFail(t *testing.T) {
	w := newWorld(t, 1)
	w.client.create(spaceTCP)
	n := w.client.create(spaceTCP)
	if err := w.client.bind(n, "10.0.0.1:1"); err != nil {
		t.Fatal(err)
	}
	w.client.service.Fail()
	w.client.expect(n, eventDeviceRemoval)
	w.client.service.Fail() // each of the program's contexts says so
	w.client.quiet()
	w.end()
}
