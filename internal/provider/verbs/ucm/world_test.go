package ucm

import (
	"errors"

	"math/rand/v2"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/sim"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
)

// A world is two devices on a simulated network in virtual time, with a program at each.
type world struct {
	t       testing.TB
	clock   *clock.Virtual
	path    *sim.Impaired
	network *sim.Network
	// descriptors counts the descriptors, and is the number of the last.
	descriptors uint32
	client      *program
	server      *program
}

var (
	clientAddress = netip.MustParseAddr("10.0.0.1")
	serverAddress = netip.MustParseAddr("10.0.0.2")
	client6       = netip.MustParseAddr("fd00::1")
	server6       = netip.MustParseAddr("fd00::2")
	second        = netip.MustParseAddr("10.0.0.3") // the server's, too
)

func newWorld(t testing.TB, seed uint64) *world {
	w := &world{t: t, clock: clock.NewVirtual()}
	w.path = &sim.Impaired{Rand: rand.New(rand.NewPCG(seed, 2)), Delay: 10 * time.Microsecond}
	w.network = sim.NewNetwork(w.clock, w.path)
	w.client = w.program(seed, clientAddress, client6)
	w.server = w.program(seed+1, serverAddress, server6, second)
	return w
}

// A program has one service, and by default one channel.
type program struct {
	w       *world
	device  *provider.Miniport
	service *Service
	*channel
	qpn uint32
}

// A channel is a descriptor as librdmacm uses it.
type channel struct {
	w             *world
	kernel        *Channel
	memory        *memory
	announcements int
	deaf          bool // takes no announcements
}

func (w *world) program(seed uint64, addresses ...netip.Addr) *program {
	w.t.Helper()
	configuration := provider.DefaultConfiguration()
	configuration.NetworkDirectRoCEFrameSize = 0
	device, err := provider.NewMiniport(provider.Config{
		Carrier: w.network.Attach(4200, addresses...), Clock: w.clock, Rand: rand.New(rand.NewPCG(seed, 7)),
		Info: provider.DefaultAdapterInfo(), Capabilities: provider.DefaultCapabilities(), Configuration: &configuration,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	p := &program{w: w, device: device, qpn: 0x100 + uint32(seed)*0x10}
	m := &memory{}
	p.service = New(Config{
		Device: device, NodeGUID: [8]byte{2, byte(seed)}, Rand: rand.New(rand.NewPCG(seed, 9)), Memory: m,
	})
	p.channel = w.channel(p.service, m)
	return p
}

func (p *program) another() *channel { return p.w.channel(p.service, p.memory) }

func (w *world) channel(s *Service, m *memory) *channel {
	c := &channel{w: w, memory: m}
	w.descriptors++
	c.kernel = s.Open(w.descriptors, c)
	return c
}

// Announce implements Announcer.
func (c *channel) Announce() bool {
	if !c.deaf {
		c.announcements++
	}
	return !c.deaf
}

// TakeBack implements Announcer.
func (c *channel) TakeBack() { c.announcements = max(0, c.announcements-1) }

// memory is a program's: 1 KiB from an address that nobody could dereference.
type memory struct{ bytes [1024]byte }

const base = 0x7000_0000_0000

var errFault = errors.New("no such memory")

func (m *memory) at(address uint64, size int) ([]byte, error) {
	if address < base || address-base > uint64(len(m.bytes)) || size > len(m.bytes)-int(address-base) {
		return nil, errFault
	}
	return m.bytes[address-base:][:size], nil
}

func (m *memory) Write(address uint64, data []byte) error {
	to, err := m.at(address, len(data))
	copy(to, data)
	return err
}

func (m *memory) Read(address uint64, data []byte) error {
	from, err := m.at(address, len(data))
	copy(data, from)
	return err
}

// command is a whole command.
func command(number int, out int, body any) []byte {
	b := encoded(body)
	return append(encoded(header{uint32(number), uint16(len(b)), uint16(out)}), b...)
}

// try gives a command, whose response is to be at base.
func (c *channel) try(number int, out int, body any) error {
	c.w.t.Helper()
	cmd := command(number, out, body)
	n, err := c.kernel.Command(cmd)
	if err == nil && n != len(cmd) {
		c.w.t.Fatalf("command %d took %d of %d bytes", number, n, len(cmd))
	}
	if err != nil {
		if _, ok := err.(syscall.Errno); !ok {
			c.w.t.Fatalf("command %d: %v is no errno", number, err)
		}
	}
	return err
}

// do gives a command that is to succeed.
func (c *channel) do(number int, out int, body any) {
	c.w.t.Helper()
	if err := c.try(number, out, body); err != nil {
		c.w.t.Fatalf("command %d: %v", number, err)
	}
}

// answer returns the last response.
func answer[T any](c *channel) T {
	v, err := decoded[T](c.memory.bytes[:])
	if err != nil {
		c.w.t.Fatal(err)
	}
	return v
}

// fails wants a command to fail with an errno.
func (c *channel) fails(want syscall.Errno, number int, out int, body any) {
	c.w.t.Helper()
	if err := c.try(number, out, body); err != want {
		c.w.t.Errorf("command %d: %v, not %v", number, err, want)
	}
}

// create makes an id whose uid is its number plus 1000.
func (c *channel) create(space uint16) uint32 {
	c.w.t.Helper()
	c.do(cmdCreateID, 4, createID{UID: 1, Response: base, PortSpace: space})
	n := answer[idResponse](c).ID
	c.kernel.service.ids[n].uid = uint64(n) + 1000
	return n
}

// destroy wants as many events to have been reported.
func (c *channel) destroy(n, events uint32) {
	c.w.t.Helper()
	c.do(cmdDestroyID, 4, destroyID{Response: base, ID: n})
	if got := answer[eventsResponse](c).EventsReported; got != events {
		c.w.t.Errorf("%d events reported of id %d, not %d", got, n, events)
	}
}

func sockaddr6(s string) (b [sockaddrIn6]byte) {
	putAddress(b[:], netip.MustParseAddrPort(s))
	return b
}

func storage(s string) (b [sockaddrStorage]byte) {
	putAddress(b[:], netip.MustParseAddrPort(s))
	return b
}

func (c *channel) bind(n uint32, address string) error {
	c.w.t.Helper()
	return c.try(cmdBindIP, 0, bindIP{ID: n, Address: sockaddr6(address)})
}

func (c *channel) listen(n uint32, address string, backlog uint32) {
	c.w.t.Helper()
	if err := c.bind(n, address); err != nil {
		c.w.t.Fatalf("bind to %s: %v", address, err)
	}
	c.do(cmdListen, 0, listen{ID: n, Backlog: backlog})
}

// resolve takes an id to where it can connect.
func (c *channel) resolve(n uint32, to string) {
	c.w.t.Helper()
	c.do(cmdResolveIP, 0, resolveIP{ID: n, Destination: sockaddr6(to)})
	c.expect(n, eventAddrResolved)
	c.do(cmdResolveRoute, 0, resolveRoute{ID: n})
	c.expect(n, eventRouteResolved)
}

// take is the next event that has come by now; false if there is none.
func (c *channel) take() (eventResponse, bool) {
	c.w.t.Helper()
	for c.announcements > 0 {
		c.announcements--
		err := c.try(cmdGetEvent, EventSize, getEvent{Response: base})
		if err == nil {
			return answer[eventResponse](c), true
		}
		if err != syscall.EAGAIN {
			c.w.t.Fatalf("GET_EVENT: %v", err)
		}
	}
	return eventResponse{}, false
}

// next waits for an event.
func (c *channel) next() eventResponse {
	c.w.t.Helper()
	var e eventResponse
	taken := func() (ok bool) { e, ok = c.take(); return ok }
	if !c.w.clock.RunUntil(taken, 5*time.Minute) {
		c.w.t.Fatal("no event")
	}
	return e
}

// expect waits for an event of an id.
func (c *channel) expect(n uint32, kind uint32) eventResponse {
	c.w.t.Helper()
	e := c.next()
	if e.ID != n || e.UID != uint64(n)+1000 || e.Event != kind {
		c.w.t.Fatalf("event %d of id %d (uid %d, status %d), not %d of %d", e.Event, e.ID, e.UID, int32(e.Status), kind, n)
	}
	return e
}

// request waits for a request to a listener: the id that it brings.
func (c *channel) request(listener uint32) (n uint32, e eventResponse) {
	c.w.t.Helper()
	e = c.next()
	if e.Event != eventConnectRequest || e.UID != uint64(listener)+1000 || e.ID == listener {
		c.w.t.Fatalf("event %d of id %d (uid %d), not a request to %d", e.Event, e.ID, e.UID, listener)
	}
	return e.ID, e
}

// quiet wants no event for a while.
func (c *channel) quiet() {
	c.w.t.Helper()
	c.w.clock.Run(time.Minute)
	if e, ok := c.take(); ok {
		c.w.t.Errorf("event %d of id %d", e.Event, e.ID)
	}
}

func param(e eventResponse) connParam {
	p, err := decoded[connParam](e.Param[:])
	if err != nil {
		panic(err)
	}
	return p
}

// said is private data.
func said(s string) (b [maxPrivateData]byte, n uint8) { return b, uint8(copy(b[:], s)) }

func params(qpn uint32, private string) connParam {
	p := connParam{QPN: qpn, ResponderResources: 5, InitiatorDepth: 3, RetryCount: 7, RNRRetryCount: 6, Valid: 1}
	p.PrivateData, p.PrivateDataLength = said(private)
	return p
}

// heard is private data up to its padding.
func heard(p connParam) string {
	b := p.PrivateData[:p.PrivateDataLength]
	for len(b) > 0 && b[len(b)-1] == 0 {
		b = b[:len(b)-1]
	}
	return string(b)
}

// attributes asks for those of a state.
func (c *channel) attributes(n, state uint32) qpAttr {
	c.w.t.Helper()
	c.do(cmdInitQPAttr, 144, initQPAttr{Response: base, ID: n, QPState: state})
	return answer[qpAttr](c)
}

// end destroys everything and wants nothing to be left.
func (w *world) end() {
	w.t.Helper()
	for _, p := range []*program{w.client, w.server} {
		p.kernel.Close()
		if n := len(p.service.ids) + len(p.service.ports) + len(p.service.groups) + len(p.service.byQPN); n != 0 {
			w.t.Errorf("%d things are left in a service", n)
		}
	}
	w.path.Loss = 0
	w.clock.Run(10 * time.Minute)
	for _, p := range []*program{w.client, w.server} {
		for range p.service.manager.Endpoints() {
			w.t.Error("a port is left")
		}
		for id := range p.service.manager.Conversations() {
			w.t.Errorf("connection %#x is left", uint32(id))
		}
		if n := p.device.Transport().Usage().Held; n != 0 {
			w.t.Errorf("%d numbers are left", n)
		}
	}
}

// resolved has the server listen, and the client find the way to it.
func (w *world) resolved() (listening, client uint32) {
	w.t.Helper()
	const address = "10.0.0.2:7471"
	listening = w.server.create(spaceTCP)
	w.server.listen(listening, address, 0)
	client = w.client.create(spaceTCP)
	w.client.resolve(client, address)
	return listening, client
}

// connecting is resolved, and the client has asked for a connection.
func (w *world) connecting() (listening, client uint32) {
	w.t.Helper()
	listening, client = w.resolved()
	w.client.do(cmdConnect, 0, connect{ID: client, Param: params(1, "")})
	return listening, client
}
