package provider_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/congestion"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/sim"
	"github.com/ndklab/ndklab/provider"
)

// A marker is a path that marks packets to some address which may be marked.
type marker struct {
	sim.Path
	to      netip.Addr
	packets int // marked
}

func (m *marker) Carry(now time.Duration, from, to netip.Addr, packet []byte) []time.Duration {
	if to == m.to && roce.IsECT(roce.ClassOf(packet)) {
		roce.Mark(packet)
		m.packets++
	}
	return m.Path.Carry(now, from, to, packet)
}

// A sighting is a packet on its way.
type sighting struct {
	at     time.Duration
	from   netip.Addr
	class  uint8
	header roce.Header
}

// newCongestedWorld makes a world of devices with congestion control, in which packets to one of the two are marked,
// and returns what is seen on the way.
func newCongestedWorld(t *testing.T, c congestion.Config, marked int) (*world, *marker, *[]sighting) {
	t.Helper()
	w := newEmptyWorld(t)
	m := &marker{Path: w.path, to: addresses[marked]}
	w.network = sim.NewNetwork(w.clock, m)
	var seen []sighting
	w.network.Tap(func(now time.Duration, packet []byte) {
		var p roce.Received
		if err := new(roce.Verifier).DecodeIP(packet, &p); err != nil {
			t.Fatal(err)
		}
		seen = append(seen, sighting{now, p.Flow.Remote, p.Class, p.Header})
	})
	for i, address := range addresses {
		cfg := w.config(w.network.Attach(mtu, address))
		cfg.Congestion = c
		w.hosts[i] = w.equip(w.start(cfg), address)
		w.hosts[i].fill(i)
	}
	return w, m, &seen
}

func dcqcn() congestion.Config {
	return congestion.Config{
		Algorithm: congestion.WithDCQCN, DCQCN: congestion.ConnectX(), DSCP: 26, CNP: congestion.ConnectXCNP(),
		LineRates: map[netip.Addr]uint64{addresses[0]: 10e9, addresses[1]: 10e9},
	}
}

// TestCongestionIsHeard: data may be marked, and nothing else; a receiver answers marks with CNPs, at most one in
// MinTime; its peer slows down (roce.md 14). So it is for a READ, whose data the other end sends.
func TestCongestionIsHeard(t *testing.T) {
	const delay = 3 * time.Microsecond
	for _, read := range []bool{false, true} {
		c := dcqcn()
		c.CNP.MinTime, c.CNP.Delay = 20*time.Microsecond, delay
		sender, receiver := 0, 1
		if read {
			sender, receiver = 1, 0
		}
		w, m, seen := newCongestedWorld(t, c, receiver)
		w.sinks()
		client, server := w.connect()
		const size, rounds = 64 << 10, 32
		begun := w.clock.Now()
		for range rounds {
			if read {
				w.want(client.qp.Read(nil, client.at(0, size), base, server.mr.RemoteToken(), 0), success)
			} else {
				w.want(client.qp.Write(nil, client.at(0, size), base, server.mr.RemoteToken(), 0), success)
			}
		}
		for _, r := range client.results(rounds) {
			w.want(r.Status, success)
		}
		took := w.clock.Now() - begun
		w.clock.Run(time.Millisecond) // for what is under way

		cnps := uint64(0)
		last := time.Duration(-1)
		for _, s := range *seen {
			data := s.from == addresses[sender] && (s.header.Opcode.IsReadResponse() || !read && s.header.Opcode.IsRequest())
			switch op := s.header.Opcode; {
			case op == roce.CNP:
				cnps++
				if s.class != 48<<2 || !s.header.BECN || s.from != addresses[receiver] || s.header.DestQPN != w.hosts[sender].qp.Number() {
					t.Errorf("a CNP of class %#x from %v: %+v", s.class, s.from, s.header)
				}
				if last >= 0 && s.at-last < c.CNP.MinTime {
					t.Errorf("a CNP %v after the one before", s.at-last)
				}
				last = s.at
			case op == roce.UDSendOnly: // of connection management
				if s.class != 0 {
					t.Errorf("a management datagram of class %#x", s.class)
				}
			case data || op == roce.ReadRequest:
				if s.class != 26<<2|roce.ECT0 {
					t.Errorf("%v has class %#x", op, s.class)
				}
			case s.class != 26<<2:
				t.Errorf("%v has class %#x", op, s.class)
			}
		}
		np, rp := w.hosts[receiver].device.TransportCounters(), w.hosts[sender].device.TransportCounters()
		if cnps == 0 || np["np_cnp_sent"] != cnps || rp["rp_cnp_handled"] != cnps || rp["rp_cnp_ignored"] != 0 || rp["cnps_received"] != cnps {
			t.Errorf("%d CNPs were seen, %d sent, %d handled, %d ignored", cnps, np["np_cnp_sent"], rp["rp_cnp_handled"], rp["rp_cnp_ignored"])
		}
		if got := np["np_ecn_marked_roce_packets"]; got != uint64(m.packets) {
			t.Errorf("%d packets were marked, %d counted", m.packets, got)
		}
		if unhindered := time.Duration(rounds * size * 8 / 10); took < 4*unhindered {
			t.Errorf("%d bytes took %v, though all were marked: the line alone takes %v", rounds*size, took, unhindered)
		}
	}
}

// TestFirstCNP is sent when its delay is over after the first marked packet has arrived.
func TestFirstCNP(t *testing.T) {
	const delay = 7 * time.Microsecond
	c := dcqcn()
	c.CNP.Delay = delay
	w, _, seen := newCongestedWorld(t, c, 1)
	w.path.Rate, w.path.Delay = 0, 10*time.Microsecond
	client, server := w.connect()
	*seen = nil
	w.want(client.qp.Write(nil, client.at(0, 100), base, server.mr.RemoteToken(), 0), success)
	client.result(success)
	w.clock.Run(delay)
	var sent, answered time.Duration
	for _, s := range *seen {
		switch s.header.Opcode {
		case roce.WriteOnly:
			sent = s.at
		case roce.CNP:
			answered = s.at
		}
	}
	if got := answered - sent; got != w.path.Delay+delay {
		t.Errorf("the CNP followed the packet by %v, want %v", got, w.path.Delay+delay)
	}
}

// TestMarksUnheard: without DCQCN and DCTCP nothing may be marked and no CNP is sent; one that comes is counted and changes nothing.
func TestMarksUnheard(t *testing.T) {
	for _, c := range []congestion.Config{{}, {Algorithm: congestion.None, DSCP: 26}, {Algorithm: congestion.WithBDP}} {
		w, m, seen := newCongestedWorld(t, c, 1)
		client, server := w.connect()
		w.want(client.qp.Write(nil, client.at(0, 60000), base, server.mr.RemoteToken(), 0), success)
		client.result(success)
		if m.packets > 0 {
			t.Errorf("%v: %d packets could be marked", c.Algorithm, m.packets)
		}
		for _, s := range *seen {
			if s.header.Opcode != roce.UDSendOnly && s.class != c.DSCP<<2 {
				t.Errorf("%v: %v has class %#x", c.Algorithm, s.header.Opcode, s.class)
			}
		}
		foreign := w.network.Attach(mtu, addresses[1]) // in the server's name
		cnp := []roce.Packet{{Header: roce.Header{Opcode: roce.CNP, PKey: roce.DefaultPKey, BECN: true, DestQPN: client.qp.Number()}}}
		if err := foreign.Send(roce.Flow{Local: addresses[1], Remote: addresses[0], SourcePort: 0xC000}, cnp); err != nil {
			t.Fatal(err)
		}
		w.settle()
		counters := client.device.TransportCounters()
		if counters["cnps_received"] != 1 {
			t.Errorf("%v: %d CNPs were counted, want 1", c.Algorithm, counters["cnps_received"])
		}
		if n, there := counters["rp_cnp_handled"]; there != (c.Algorithm != congestion.Window) {
			t.Errorf("%v: counters of congestion control: %v, %d", c.Algorithm, there, n)
		} else if there && (n != 0 || counters["rp_cnp_ignored"] != 1) {
			t.Errorf("%v: %d CNPs were handled and %d ignored, want none and 1", c.Algorithm, n, counters["rp_cnp_ignored"])
		}
	}
}

// TestBadCongestion: a device with parameters that make no sense does not start, and the error names the first.
func TestBadCongestion(t *testing.T) {
	w := newEmptyWorld(t)
	cfg := w.config(w.network.Attach(mtu, addresses[0]))
	cfg.Congestion = dcqcn()
	cfg.Congestion.DCQCN.RPGThreshold = 0
	_, err := provider.NewMiniport(cfg)
	if want := "start adapter: congestion: rpg_threshold is 0, want 1 to 31"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %q", err, want)
	}
	for i, address := range addresses { // for the world's end
		w.hosts[i] = w.equip(w.start(w.config(w.network.Attach(mtu, address))), address)
	}
}
