package roce

import (
	"bytes"
	"encoding/binary"
	"path/filepath"
	"testing"
)

// seeds are whole IP packets: roce.md's vectors, and what a Linux kernel sent.
func seeds(f *testing.F) [][]byte {
	f.Helper()
	var packets [][]byte
	for _, vec := range vectors(f) {
		packets = append(packets, unhex(f, vec.wire))
	}
	for name := range captured {
		packets = append(packets, readPcap(f, filepath.Join(captures, name+".pcap"))...)
	}
	return packets
}

// FuzzDecode: no UDP payload brings Decode down, and what it takes apart Append
// puts together again, but for the bits that are reserved.
func FuzzDecode(f *testing.F) {
	for _, packet := range seeds(f) {
		f.Add(packet[ipHeaderLen(packet)+udpLen:])
	}
	for _, o := range knownOpcodes() {
		f.Add(datagram(&Header{Opcode: o}, []byte("odd")))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var h Header
		payload, err := Decode(b, &h)
		if err != nil {
			return
		}
		again := datagram(&h, payload)
		if want := withoutReserved(b, &h, len(payload)); !bytes.Equal(again, want) {
			t.Fatalf("%+v with %d bytes is\n%x, want\n%x", h, len(payload), again, want)
		}
	})
}

// withoutReserved is a UDP payload with zeros where Decode does not look: in
// reserved bits, padding and ICRC.
func withoutReserved(b []byte, h *Header, payload int) []byte {
	b = bytes.Clone(b)
	b[4] &= 0xC0
	b[8] &= 0x80
	switch ext := opcodes[h.Opcode].extension; {
	case ext&extDETH != 0:
		b[bthLen+4] = 0
	case ext&extReserved != 0:
		clear(b[bthLen : bthLen+reservedLen])
	case ext&extFETH != 0:
		binary.BigEndian.PutUint32(b[bthLen:], uint32(b[bthLen+3]&0x3F))
	}
	clear(b[h.Opcode.HeaderLen()+payload:])
	return b
}

// FuzzVerify: no bytes bring the Verifier down; a packet whose ICRC is right with
// its IPv4 identification in sight is right without, and not with a bit changed.
func FuzzVerify(f *testing.F) {
	for _, packet := range seeds(f) {
		f.Add(packet, uint16(0))
		f.Add(packet, binary.BigEndian.Uint16(packet[4:]))
	}
	f.Fuzz(func(t *testing.T, b []byte, hint uint16) {
		var v Verifier
		var r Received
		if err := v.DecodeIP(b, &r); err == nil {
			checkIntact(t, b, &r, hint)
		}
		for _, local := range flows {
			id, ok := v.Verify(&local, b, hint)
			if !ok {
				continue
			}
			// The ID that it found must hold when computed outright.
			if again, ok := new(Verifier).Verify(&local, b, id); !ok || again != id {
				t.Fatalf("found ID %#x, which does not fit", id)
			}
		}
	})
}

// checkIntact looks at a packet that DecodeIP has taken for intact.
func checkIntact(t *testing.T, b []byte, r *Received, hint uint16) {
	t.Helper()
	udp, id, end := ipv6Len, uint16(0), 0
	if b[0] == 0x45 {
		udp, id, end = ipv4Len, binary.BigEndian.Uint16(b[4:]), int(binary.BigEndian.Uint16(b[2:]))
		if b[6] != 0x40 {
			return // sent without the flag that Verify takes for granted
		}
	} else {
		end = ipv6Len + int(binary.BigEndian.Uint16(b[4:]))
	}
	udpPayload := b[udp+udpLen : end]
	if got, ok := new(Verifier).Verify(&r.Flow, udpPayload, hint); !ok || got != id {
		t.Fatalf("ID %#x, found %#x, %v", id, got, ok)
	}
	bit := int(hint) % (8 * len(udpPayload))
	changed := bytes.Clone(udpPayload)
	changed[bit/8] ^= 1 << (bit % 8)
	if got, ok := new(Verifier).Verify(&r.Flow, changed, id); ok && got == id && bit/8 != 4 {
		t.Fatalf("bit %d of the UDP payload makes no difference", bit)
	}
}
