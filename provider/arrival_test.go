package provider_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/roce/mad"
	"github.com/ndklab/ndklab/provider"
)

// A gate is a carrier before whose adapter packets can be changed or kept.
type gate struct {
	provider.Carrier
	receiver provider.Receiver
	change   func(*roce.Received) // if set
	keep     bool
	kept     []roce.Received
}

func (g *gate) Listen(r provider.Receiver) {
	g.receiver = r
	g.Carrier.Listen(g)
}

func (g *gate) Receive(packets []roce.Received) {
	for i := range packets {
		p := packets[i]
		p.Payload = bytes.Clone(p.Payload)
		if g.change != nil {
			g.change(&p)
		}
		g.kept = append(g.kept, p)
	}
	if !g.keep {
		g.open()
	}
}

// open has what was kept arrive at once.
func (g *gate) open() {
	kept := g.kept
	g.kept, g.keep = nil, false
	g.receiver.Receive(kept)
}

// newGatedWorld is newWorld with a gate before each adapter.
func newGatedWorld(t testing.TB) (*world, [2]*gate) {
	t.Helper()
	var gates []*gate
	w := newWorldWith(t, addresses, func(cfg *provider.Config) {
		gates = append(gates, &gate{Carrier: cfg.Carrier})
		cfg.Carrier = gates[len(gates)-1]
	})
	return w, [2]*gate(gates)
}

func TestArrival(t *testing.T) {
	t.Run("packets of two queue pairs at once", func(t *testing.T) {
		w, gates := newGatedWorld(t)
		client, server := w.connect()
		first, firstServer := client.qp, server.qp
		w.rejoin()
		w.want(firstServer.Receive("first", nil), success)
		w.want(server.qp.Receive("second", nil), success)
		gates[1].keep = true
		w.want(first.Send(nil, nil, 0), success)
		w.want(client.qp.Send(nil, nil, 0), success)
		w.clock.Run(100 * time.Microsecond)
		if len(gates[1].kept) != 2 {
			t.Fatalf("%d packets", len(gates[1].kept))
		}
		before := w.clock.Now()
		gates[1].open()
		for _, want := range []string{"first", "second"} {
			if r := server.result(success); r.RequestContext != want {
				t.Errorf("%v completed, want %v", r.RequestContext, want)
			}
		}
		client.results(2)
		if took := w.clock.Now() - before; took > time.Millisecond {
			t.Errorf("took %v: a packet went astray", took)
		}
	})
	t.Run("roce.md 7.1 a P_Key of a limited member, and of another partition", func(t *testing.T) {
		for key, taken := range map[uint16]bool{0xFFFF: true, 0x7FFF: true, 0xFFFE: false, 0x0001: false} {
			w, gates := newGatedWorld(t)
			client, server := w.connect()
			gates[1].change = func(p *roce.Received) { p.Header.PKey = key }
			server.receive(1)
			before := server.device.TransportCounters()["misdirected"]
			w.want(client.qp.Send(nil, nil, 0), success)
			w.clock.Run(time.Millisecond)
			if got := server.cq.Results(make([]provider.Result, 1)) == 1; got != taken {
				t.Errorf("P_Key %#x: taken is %v", key, got)
			}
			if got := server.device.TransportCounters()["misdirected"] > before; got == taken {
				t.Errorf("P_Key %#x: counted as misdirected is %v", key, got)
			}
			gates[1].change = nil
		}
	})
	t.Run("roce.md 7.1 10 management datagrams with another Q_Key, P_Key or opcode", func(t *testing.T) {
		for name, change := range map[string]func(*roce.Header){
			"Q_Key":     func(h *roce.Header) { h.QKey++ },
			"P_Key":     func(h *roce.Header) { h.PKey-- },
			"RC":        func(h *roce.Header) { h.Opcode = roce.SendOnly },
			"immediate": func(h *roce.Header) { h.Opcode = roce.UDSendOnlyImm },
			"CNP":       func(h *roce.Header) { h.Opcode = roce.CNP },
		} {
			w, gates := newGatedWorld(t)
			client, server := w.hosts[0], w.hosts[1]
			requests := 0
			server.listen(func(*provider.Connector) { requests++ })
			gates[1].change = func(p *roce.Received) { change(&p.Header) }
			a := client.dial(client.newConnector(), server)
			w.settle()
			if requests > 0 || a.over() {
				t.Errorf("%s: a request was delivered", name)
			}
			if got := server.device.TransportCounters()["misdirected"]; got != 4 { // at 0, 0.1, 0.3 and 0.7 s
				t.Errorf("%s: %d datagrams counted", name, got)
			}
			gates[1].change = nil
			w.settle()
			if requests != 1 {
				t.Errorf("%s: %d requests then", name, requests)
			}
		}
	})
	t.Run("roce.md 10 a management datagram of a limited member, with AckReq", func(t *testing.T) {
		w, gates := newGatedWorld(t)
		gates[1].change = func(p *roce.Received) {
			if p.Header.DestQPN == mad.QPN {
				p.Header.PKey, p.Header.AckReq, p.Header.MigReq = 0x7FFF, true, true
			}
		}
		w.connect()
	})
	t.Run("roce.md 14 13.14 CNPs are counted, and no more", func(t *testing.T) {
		w, gates := newGatedWorld(t)
		client, server := w.connect()
		cnp := roce.Received{
			Flow:    roce.Flow{Local: client.address, Remote: server.address},
			Header:  roce.Header{Opcode: roce.CNP, PKey: roce.DefaultPKey, DestQPN: client.qp.Number(), BECN: true},
			Payload: make([]byte, 16),
		}
		server.receive(1)
		w.want(client.qp.Send(nil, nil, 0), success)
		before := client.device.Counters()
		gates[0].receiver.Receive([]roce.Received{cnp, cnp})
		if got := client.device.TransportCounters()["cnps_received"]; got != 2 {
			t.Errorf("%d counted", got)
		}
		if after := client.device.Counters(); after.RDMAInFrames != before.RDMAInFrames {
			t.Errorf("counted as frames of the connection: %d", after.RDMAInFrames-before.RDMAInFrames)
		}
		client.result(success)
		server.result(success)
		cnp.Flow.Remote = nowhere.Addr()
		gates[0].receiver.Receive([]roce.Received{cnp})
		if got := client.device.TransportCounters(); got["cnps_received"] != 2 || got["misdirected"] != 1 {
			t.Errorf("of a stranger: %d CNPs, %d misdirected", got["cnps_received"], got["misdirected"])
		}
	})
	t.Run("roce.md 7.1 packets of another transport", func(t *testing.T) {
		w, gates := newGatedWorld(t)
		client, server := w.connect()
		server.receive(1)
		for _, op := range []roce.Opcode{roce.UDSendOnly, roce.UDSendOnlyImm} {
			gates[1].change = func(p *roce.Received) { p.Header.Opcode = op }
			w.want(client.qp.Send(nil, nil, 0), success)
			w.clock.Run(50 * time.Microsecond)
			if got := server.device.TransportCounters()["misdirected"]; got == 0 {
				t.Errorf("%v: not counted", op)
			}
			if server.cq.Results(make([]provider.Result, 1)) != 0 {
				t.Errorf("%v: taken", op)
			}
		}
		gates[1].change = nil
		server.result(success)
	})
	t.Run("roce.md 10 management datagrams have the headers that Linux gives them, and are numbered", func(t *testing.T) {
		w, gates := newGatedWorld(t)
		var numbers []uint32
		gates[1].change = func(p *roce.Received) {
			if p.Header.DestQPN != mad.QPN {
				return
			}
			numbers = append(numbers, p.Header.PSN)
			want := roce.Header{
				Opcode: 0x64, PKey: 0xFFFF, DestQPN: 1, PSN: p.Header.PSN, QKey: 0x80010000, SourceQPN: 1,
			}
			if d := cmp.Diff(want, p.Header); d != "" || len(p.Payload) != 256 {
				t.Errorf("%d bytes with header (-want +got):\n%s", len(p.Payload), d)
			}
		}
		w.connect()
		w.rejoin()
		if len(numbers) != 4 { // a REQ and an RTU each
			t.Fatalf("%d datagrams", len(numbers))
		}
		for i, n := range numbers {
			if n != roce.PSNAdd(numbers[0], i) {
				t.Errorf("numbered %v", numbers)
			}
		}
	})
	t.Run("the first request establishes, whatever comes with it", func(t *testing.T) {
		w, gates := newGatedWorld(t)
		client, server := w.hosts[0], w.hosts[1]
		var accepted *async
		server.listen(func(c *provider.Connector) { accepted = server.accept(c) })
		client.conn = client.newConnector()
		w.want(w.finish(client.dial(client.conn, server)), success)
		gates[1].keep = true
		w.want(client.complete(), success)
		w.want(client.qp.Send(nil, nil, 0), success)
		w.clock.Run(time.Millisecond)
		var data []roce.Received // without the RTU
		for _, p := range gates[1].kept {
			if p.Header.DestQPN != mad.QPN {
				data = append(data, p)
			}
		}
		answer := data[0]
		answer.Header.Opcode, answer.Payload = roce.Acknowledge, nil
		gates[1].kept = append(data[:1:1], answer)
		server.receive(1)
		gates[1].open()
		w.clock.Run(0)
		if !accepted.over() {
			t.Fatal("not established by the peer's first request")
		}
		server.result(success)
	})
	t.Run("a response that is shorter than it says", func(t *testing.T) {
		w, gates := newGatedWorld(t)
		client, server := w.connect()
		gates[0].change = func(p *roce.Received) {
			if p.Header.Opcode.IsReadResponse() {
				p.Payload = p.Payload[1:]
			}
		}
		unchanged := client.unchanged()
		w.want(client.qp.Read(nil, client.at(0, 100), base, server.mr.RemoteToken(), 0), success)
		client.result(provider.StatusDataError)
		unchanged()
	})
	t.Run("a peer that allows no further tries", func(t *testing.T) {
		w, gates := newGatedWorld(t)
		gates[0].change = func(p *roce.Received) {
			var rep mad.REP
			if p.Header.DestQPN == mad.QPN && rep.Decode(p.Payload) == nil {
				rep.RNRRetryCount = 0
				p.Payload = rep.Append(nil)
			}
		}
		client, server := w.connect()
		w.want(client.qp.Send(nil, nil, 0), success) // for which there is no receive
		client.result(provider.StatusIOTimeout)
		w.settle()
		if client.disconnected != 1 || server.disconnected != 1 {
			t.Errorf("%d and %d disconnect events", client.disconnected, server.disconnected)
		}
	})
}
