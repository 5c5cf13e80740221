package provider_test

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/provider"
)

// A fuzzed input is a string of packets: a byte that says from whom, to whom and
// when, the length of the UDP payload in 16 bits, and the payload, whose ICRC is
// taken for right.
const (
	fuzzToServer   = 1 << iota // to the server's device, else the client's
	fuzzAstray                 // not from the other device's address
	fuzzWithNext               // handed over together with the next
	fuzzLater                  // a millisecond after the one before
	fuzzMuchLater              // a second after it
	fuzzRequest                // the receiver posts one of each request before
	fuzzAddressQPN             // to the receiver's queue pair, whatever it says
)

// A quarry is the target of a fuzzer's packets: two connected hosts with work under
// way, whose links are cut.
type quarry struct {
	*world
	client, server *host
	gates          [2]*gate
	memory         []byte    // registered by both for local use, with nothing posted there
	tokens         [2]uint32 // of memory
	posted, done   map[int]bool
}

// secret returns bytes that no peer may read or change; secretBase is their address.
func secret() []byte { return noise()[2][:4096] }

const secretBase = 0x7000_0000

func newQuarry(t testing.TB, tap func(time.Duration, []byte)) *quarry {
	w, gates := newGatedWorld(t)
	w.network.Tap(tap)
	x := &quarry{world: w, gates: gates, posted: map[int]bool{}, done: map[int]bool{}}
	x.client, x.server = w.connect()
	x.memory = bytes.Clone(secret())
	for i, h := range w.hosts {
		x.tokens[i] = h.register(secretBase, x.memory, provider.MRAllowLocalWrite).LocalToken()
		x.request(h)
	}
	return x
}

// request posts one of each request that a host can. In their memory all is
// allowed, so that only the other memory is looked at.
func (x *quarry) request(h *host) {
	post := func(call func(context any) provider.Status) {
		n := len(x.posted)
		if call(n) == success {
			x.posted[n] = true
		}
	}
	post(func(c any) provider.Status { return h.qp.Receive(c, h.at(65536, 8000)) })
	post(func(c any) provider.Status { return h.qp.Send(c, h.at(4096, 5000), 0) })
	post(func(c any) provider.Status { return h.qp.Read(c, h.at(16384, 5000), base, h.mr.RemoteToken(), 0) })
	post(func(c any) provider.Status {
		return h.qp.Write(c, h.at(32768, 5000), base, h.mr.RemoteToken(), provider.OpSilentSuccess)
	})
}

// collect takes completions: each request has one at most.
func (x *quarry) collect() {
	for _, h := range x.hosts {
		results := make([]provider.ResultEx, 16)
		for n := h.cq.ResultsEx(results); n > 0; n = h.cq.ResultsEx(results) {
			for _, r := range results[:n] {
				n := r.RequestContext.(int)
				if !x.posted[n] || x.done[n] {
					x.t.Fatalf("request %d: completed twice, or never posted", n)
				}
				x.done[n] = true
			}
		}
	}
}

// hear hands packets over.
func (x *quarry) hear(input []byte) {
	var batch []roce.Received
	for len(input) >= 3 {
		flags, length := input[0], int(binary.BigEndian.Uint16(input[1:]))
		payload := input[3:min(3+length, len(input))]
		input = input[3+len(payload):]
		i := 0
		if flags&fuzzToServer != 0 {
			i = 1
		}
		h, other := x.hosts[i], x.hosts[1-i]
		if flags&fuzzRequest != 0 {
			x.request(h)
		}
		switch {
		case flags&fuzzMuchLater != 0:
			x.clock.Run(time.Second)
		case flags&fuzzLater != 0:
			x.clock.Run(time.Millisecond)
		}
		p := roce.Received{Flow: roce.Flow{Local: h.address, Remote: other.address, SourcePort: 0xC000}}
		if flags&fuzzAstray != 0 {
			p.Flow.Remote = netip.MustParseAddr("10.0.0.77")
		}
		body, err := roce.Decode(payload, &p.Header)
		if err != nil {
			continue
		}
		p.Payload = bytes.Clone(body) // lent, so that nobody may keep it
		if flags&fuzzAddressQPN != 0 {
			p.Header.DestQPN = h.qp.Number()
		}
		batch = append(batch, p)
		if flags&fuzzWithNext == 0 {
			x.gates[i].receiver.Receive(batch)
			for i := range batch {
				clear(batch[i].Payload)
			}
			batch = batch[:0]
		}
		x.collect()
	}
}

// FuzzReceive has two devices hear packets of any contents, as from each other, on
// a live connection and at the connection manager. They must not fail, let memory be
// read or altered that is not the peer's to touch, or complete anything twice; and
// all that is open can be closed.
func FuzzReceive(f *testing.F) {
	for _, seed := range conversation(f) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		x := newQuarry(t, func(_ time.Duration, packet []byte) {
			var h roce.Header
			data, err := roce.Decode(packet[28:], &h)
			if err != nil || h.Opcode.IsReadResponse() && len(data) >= 8 && bytes.Contains(secret(), data[:8]) {
				t.Fatalf("%v tells what nobody may read (%v)", h.Opcode, err)
			}
		})
		x.path.Down = true
		x.hear(input)
		x.path.Down = false
		x.settle()
		x.collect()
		if !bytes.Equal(x.memory, secret()) {
			t.Fatal("memory has changed that nobody may write to")
		}
	})
}

// fuzzed is a packet as the fuzzer's input has it.
func fuzzed(flags byte, udpPayload []byte) []byte {
	return append(binary.BigEndian.AppendUint16([]byte{flags}, uint16(len(udpPayload))), udpPayload...)
}

// conversation is seeds: what a quarry's hosts say to each other, first each packet
// alone and then all together; and a packet of each opcode in the place of the
// client's first, which asks for what is not allowed.
func conversation(f *testing.F) [][]byte {
	f.Helper()
	var each [][]byte
	var first roce.Header
	x := newQuarry(f, func(_ time.Duration, packet []byte) {
		flags, udpPayload := byte(0), packet[28:]
		if netip.AddrFrom4([4]byte(packet[16:20])) == addresses[1] {
			flags = fuzzToServer
			if !first.Opcode.IsRequest() || first.DestQPN < 16 {
				if _, err := roce.Decode(udpPayload, &first); err != nil {
					f.Fatal(err)
				}
			}
		}
		each = append(each, fuzzed(flags, udpPayload))
	})
	x.settle()
	x.collect()
	x.request(x.server)
	x.posted[len(x.posted)] = true
	x.want(x.client.qp.SendAndInvalidate(len(x.posted)-1, nil, 0, x.client.mr.RemoteToken()), success) // refused
	x.settle()
	x.collect()
	seeds := append(each, bytes.Join(each, nil))
	for op := range 256 {
		h := first
		h.Opcode = roce.Opcode(op)
		if !h.Opcode.Known() {
			continue
		}
		h.VA, h.RKey, h.DMALength, h.InvalidateKey = secretBase, x.tokens[1], 16, x.tokens[1]
		data := ""
		if h.Opcode.IsSend() || h.Opcode.IsWrite() {
			data = "sixteen bytes it"
		}
		b := append(h.Append(nil, len(data)), data...)
		seeds = append(seeds, fuzzed(fuzzToServer, append(b, 0, 0, 0, 0)))
	}
	return seeds
}
