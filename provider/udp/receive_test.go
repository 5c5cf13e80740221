package udp

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/provider"
)

// TestBacklog has more arrive, before Listen, than a Receiver is given at once.
func TestBacklog(t *testing.T) {
	from, to := open(t, "127.0.0.1"), open(t, "127.0.0.2")
	flow := flowBetween(from, to, 0)
	var packets []roce.Packet
	for i := range 3 * receiveBatch {
		packets = append(packets, acknowledgement(uint32(i)))
	}
	mustSend(t, from, flow, packets)
	arrived := newCollector()
	to.Listen(arrived)
	if d := diff(wants(t, flow, packets), arrived.take(t, len(packets))); d != "" {
		t.Errorf("want (-), got (+):\n%s", d)
	}
}

// arriving returns when what send sends has arrived at a listener that nobody listens at, or
// was refused there: what crosses a link, or the loopback interface, may wait for a thread of
// the kernel's.
func arriving(t *testing.T, l *listener, send func()) {
	t.Helper()
	before := memory(l.fd)
	send()
	for deadline := time.Now().Add(patience); memory(l.fd) == before; {
		if time.Now().After(deadline) {
			t.Fatal("what was sent does not arrive")
		}
	}
}

// awaitRefused waits until a carrier has refused n packets, and says how many for what. They
// need not arrive before what others sent later.
func awaitRefused(t *testing.T, c *Carrier, n uint64) (malformed, icrcErrors uint64) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		counters := c.Counters()
		malformed, icrcErrors = counters["malformed"], counters["icrc_errors"]
		if malformed+icrcErrors >= n {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d packets were malformed and %d had a wrong ICRC, want %d in all", malformed, icrcErrors, n)
		}
	}
	if malformed+icrcErrors > n {
		t.Errorf("%d packets were malformed and %d had a wrong ICRC, want %d in all", malformed, icrcErrors, n)
	}
	return malformed, icrcErrors
}

func TestForeignGarbage(t *testing.T) {
	c := open(t, "127.0.0.1")
	arrived := newCollector()
	c.Listen(arrived)
	stranger, err := net.Dial("udp4", "127.0.0.1:4791")
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	noise := random(2000)
	const n = 500
	for i := range n {
		b := noise[:4*i]
		if i%3 == 0 {
			b = noise[i : 2*i]
		}
		if i%2 == 0 && len(b) > 12 {
			b[0], b[1] = byte(roce.SendOnly), 0 // well-formed, apart from the ICRC
		}
		if _, err := stranger.Write(b); err != nil {
			t.Fatal(err)
		}
		if i%50 == 0 { // do not overflow the buffer
			mustSend(t, c, flowBetween(c, c, 0), []roce.Packet{acknowledgement(0)})
			arrived.take(t, 1)
		}
	}
	mustSend(t, c, flowBetween(c, c, 0), []roce.Packet{acknowledgement(0)})
	arrived.take(t, 1)
	if malformed, icrcErrors := awaitRefused(t, c, n); malformed == 0 || icrcErrors == 0 {
		t.Errorf("of %d foreign datagrams %d were malformed and %d had a wrong ICRC", n, malformed, icrcErrors)
	}
}

// TestGranted: a carrier counts on what the kernel has granted, whatever was asked for.
func TestGranted(t *testing.T) {
	c := open(t, "127.0.0.1")
	granted := c.listeners[0].granted
	if want := granted / 9 * 4; c.ReceiveBuffer() != want || Charged(want) > granted {
		t.Errorf("ReceiveBuffer %d of %d bytes granted, want %d", c.ReceiveBuffer(), granted, want)
	}
	if asked := Memory(provider.DefaultReceiveBuffer); asked < 2*Charged(provider.DefaultReceiveBuffer) {
		t.Errorf("asks for %d bytes, which leaves no reserve", asked)
	}
}

// TestOverflow has nobody read, and every message be one packet.
func TestOverflow(t *testing.T) {
	from := open(t, "127.0.0.1")
	to, err := Open(Config{Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.2")}, ReceiveBuffer: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	closeLater(t, to)
	flow := flowBetween(from, to, 0)
	const n = 100
	packets := writes(random(4<<10), 4<<10)
	for range n {
		arriving(t, to.listeners[0], func() { mustSend(t, from, flow, packets) })
	}
	overflow := to.Counters()["receive_overflow"]
	if overflow == 0 || overflow >= n {
		t.Fatalf("%d of %d packets overflowed the receive buffer", overflow, n)
	}
	// Without pagedFrom it would be 7.
	if took := n - overflow; took < 10 || took > 20 {
		t.Errorf("64 KiB of memory took %d packets of 4 KiB", took)
	}
	arrived := newCollector()
	to.Listen(arrived)
	arrived.take(t, n-int(overflow))
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	if got := to.Counters()["receive_overflow"]; got != overflow {
		t.Errorf("after Close, receive_overflow is %d instead of %d", got, overflow)
	}
}
