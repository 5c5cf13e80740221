package rc

import (
	"bytes"
	"encoding/binary"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// A captured packet between two Linux kernels. The client, which requests,
// ends in .11 and the server in .12 (../roce/testdata/captures/README.md).
type captured struct {
	header     roce.Header
	payload    []byte
	fromClient bool
}

func readCapture(t *testing.T, name string) []captured {
	t.Helper()
	const fileHeader, recordHeader, etherLen, ipLen, udpLen = 24, 16, 14, 20, 8
	file, err := os.ReadFile("../roce/testdata/captures/" + name + ".pcap")
	if err != nil {
		t.Fatal(err)
	}
	var packets []captured
	for file = file[fileHeader:]; len(file) > 0; {
		n := int(binary.LittleEndian.Uint32(file[8:]))
		ip := file[recordHeader+etherLen : recordHeader+n]
		p := captured{fromClient: ip[15] == 11}
		if p.payload, err = roce.Decode(ip[ipLen+udpLen:], &p.header); err != nil {
			t.Fatal(err)
		}
		packets = append(packets, p)
		file = file[recordHeader+n:]
	}
	return packets
}

// side describes the packets of one side, in order.
func side(packets []captured, fromClient bool) []string {
	var all []string
	for _, p := range packets {
		if p.fromClient == fromClient {
			all = append(all, describePacket(&roce.Packet{Header: p.header, Payload: [][]byte{p.payload}}))
		}
	}
	return all
}

// replay makes an end in the place of one side, with one region of memory for
// all local data and, at the address that the capture names, one for remote.
func replay(t *testing.T, packets []captured, change func(*Connection)) *end {
	e := newEnd(t, testConfig)
	c := testConnection
	c.SendPSN = packets[0].header.PSN
	c.ReceivePSN = c.SendPSN
	c.InitiatorDepth, c.ResponderResources = 16, 16
	if change != nil {
		change(&c)
	}
	if err := e.qp.Connect(c); err != nil {
		t.Fatal(err)
	}
	e.memory.add(1, 8192)
	for _, p := range packets {
		switch h := p.header; {
		case h.Opcode.HasRETH():
			e.memory[h.RKey] = &region{base: h.VA, bytes: make([]byte, h.DMALength)}
		case h.Opcode.IsAtomic():
			e.memory.hold(h)
		}
	}
	return e
}

// hold makes the region of an atomic request reach as far as the request does.
func (m fakeMemory) hold(h roce.Header) {
	r := m[h.RKey]
	if r == nil {
		r = &region{base: h.VA}
		m[h.RKey] = r
	}
	if before := int(r.base) - int(h.VA); before > 0 {
		r.base, r.bytes = h.VA, append(make([]byte, before), r.bytes...)
	}
	if beyond := int(h.VA-r.base) + atomicBytes - len(r.bytes); beyond > 0 {
		r.bytes = append(r.bytes, make([]byte, beyond)...)
	}
}

// TestLikeALinuxResponder: to what a Linux requester sent, we answer what the
// Linux responder did.
func TestLikeALinuxResponder(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Connection)
		lost   func(n int) bool // whether the n-th request, from 1, did not arrive
		late   int              // receives are posted before this request, from 0
		forget bool             // the token is not valid here
	}{
		{name: "send"},
		{name: "send-fragmented"},
		{name: "write"},
		{name: "read"},
		{name: "nak-sequence", lost: func(n int) bool { return n%5 == 4 }},
		{name: "rnr-nak", late: 4, change: func(c *Connection) { c.MinRNRTimer = 26 }},
		{name: "immediate"},
		{name: "atomic-fetch-add", change: allowAtomics},
		{name: "atomic-cmp-swap", change: allowAtomics},
		{name: "nak-access", forget: true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			packets := readCapture(t, test.name)
			e := replay(t, packets, test.change)
			if test.forget {
				clear(e.memory)
			}
			found := map[uint32]uint64{} // by atomics
			for _, p := range packets {
				found[p.header.PSN] = p.header.Original
			}
			n := 0
			var got []string
			for _, p := range packets {
				if !p.fromClient {
					continue
				}
				if n == test.late {
					for range 16 {
						e.postReceive(Receive{SGL: []SGE{piece(1, 0, 8192)}})
					}
				}
				n++
				if test.lost != nil && test.lost(n) {
					continue
				}
				h := p.header
				if h.Opcode.IsAtomic() {
					at := e.memory[h.RKey].bytes[h.VA-e.memory[h.RKey].base:]
					binary.NativeEndian.PutUint64(at, found[h.PSN])
				}
				e.qp.Handle(0, &h, p.payload)
				for e.qp.Next(0, &e.packet) {
					got = append(got, describePacket(&e.packet))
				}
			}
			if diff := cmp.Diff(side(packets, false), got); diff != "" {
				t.Errorf("answers (-Linux +ours):\n%s", diff)
			}
		})
	}
}

// TestLikeALinuxRequester: we send what the Linux requester sent, and put up
// with what the Linux responder answered.
func TestLikeALinuxRequester(t *testing.T) {
	for _, name := range []string{"send", "send-fragmented", "write", "read", "atomic-fetch-add", "atomic-cmp-swap"} {
		t.Run(name, func(t *testing.T) {
			packets := readCapture(t, name)
			e := replay(t, packets, nil)
			size := 64
			switch {
			case strings.HasPrefix(name, "atomic"):
				size = atomicBytes
			case name != "send":
				size = 3001
			}
			var payload []byte
			for _, p := range packets {
				if len(payload) < size {
					payload = append(payload, p.payload...)
				}
			}
			copy(e.memory[1].bytes, payload)
			var got []captured
			var wanted []string
			for _, p := range packets {
				h := p.header
				if !p.fromClient || !h.Opcode.Starts() {
					continue
				}
				r := sends(0, size)
				r.VA, r.Token, r.Operand, r.Compare = h.VA, h.RKey, h.SwapAdd, h.Compare
				switch {
				case h.Opcode.IsWrite():
					r.Op = OpWrite
				case h.Opcode == roce.ReadRequest:
					r.Op = OpRead
				case h.Opcode == roce.FetchAdd:
					r.Op = OpFetchAdd
				case h.Opcode == roce.CompareSwap:
					r.Op = OpCompareSwap
				}
				wanted = append(wanted, describe(Completion{Op: r.Op, Context: 0}))
				e.queue(r)
			}
			for e.qp.Next(0, &e.packet) {
				p := captured{header: e.packet.Header, payload: bytes.Join(e.packet.Payload, nil), fromClient: true}
				got = append(got, p)
			}
			if diff := cmp.Diff(side(packets, true), side(got, true)); diff != "" {
				t.Errorf("requests (-Linux +ours):\n%s", diff)
			}
			if name == "read" {
				clear(e.memory[1].bytes)
			}
			for _, p := range packets {
				if !p.fromClient {
					h := p.header
					e.qp.Handle(0, &h, p.payload)
				}
			}
			e.done = e.qp.Completions(nil)
			e.check(wanted...)
			if last := packets[len(packets)-1].header; last.Opcode == roce.AtomicAcknowledge {
				payload = binary.NativeEndian.AppendUint64(nil, last.Original)
			}
			if !bytes.Equal(e.memory[1].bytes[:size], payload[:size]) {
				t.Error("the data differ")
			}
		})
	}
}

// TestLinuxNAKs: ten SENDs to a Linux responder that loses some; we send again the
// packets that it lacks. Where only the timer repairs, a probe goes first, which has the
// number of the packet before.
func TestLinuxNAKs(t *testing.T) {
	packets := readCapture(t, "nak-sequence")
	e := replay(t, packets, nil)
	first := packets[0].header.PSN
	for i := range 10 {
		e.queue(sends(i, 64))
	}
	var sent []uint32
	pull := func(now time.Duration) {
		for e.qp.Next(now, &e.packet) {
			sent = append(sent, e.packet.Header.PSN-first)
		}
	}
	now := time.Duration(0)
	pull(now)
	for i, p := range packets {
		if p.fromClient {
			continue
		}
		if i == len(packets)-1 { // the loss that only the timeout repairs
			now, _ = e.qp.Deadline()
			e.qp.HandleTimeout(now)
			pull(now)
		}
		now += 100 * time.Microsecond
		h := p.header
		e.qp.Handle(now, &h, p.payload)
		pull(now)
	}
	want := []uint32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 3, 4, 5, 6, 7, 8, 9, 6, 7, 8, 9, 7, 8, 9, 8}
	if diff := cmp.Diff(want, sent); diff != "" {
		t.Errorf("(-want +sent):\n%s", diff)
	}
	e.done = e.qp.Completions(nil)
	if len(e.done) != 10 || e.qp.State() != Ready {
		t.Errorf("%d completions, state %v", len(e.done), e.qp.State())
	}
}

// TestLinuxRNRNAKs: a SEND to a Linux responder without a receive.
func TestLinuxRNRNAKs(t *testing.T) {
	packets := readCapture(t, "rnr-nak")
	e := replay(t, packets, nil)
	e.queue(sends(1, 64))
	now := time.Duration(0)
	for _, p := range packets {
		if p.fromClient {
			if !e.qp.Next(now, &e.packet) || e.packet.Header.PSN != p.header.PSN {
				t.Fatalf("at %v: not sent", now)
			}
			continue
		}
		h := p.header
		e.qp.Handle(now, &h, p.payload)
		if h.Syndrome.IsRNR() {
			if at, ok := e.qp.Deadline(); !ok || at != now+81920*time.Microsecond {
				t.Fatalf("waits until %v", at)
			}
			now += 81920 * time.Microsecond
			e.qp.HandleTimeout(now)
		}
	}
	e.completed("send ok 1")
}
