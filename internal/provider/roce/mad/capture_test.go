package mad

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
)

// datagrams reads the management datagrams of a classic pcap file (microseconds,
// little-endian, Ethernet).
func datagrams(t testing.TB, file string) [][]byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(b) < 24 || binary.LittleEndian.Uint32(b) != 0xA1B2C3D4 {
		t.Fatalf("%s is no pcap file", file)
	}
	var found [][]byte
	for b = b[24:]; len(b) >= 16; {
		n := binary.LittleEndian.Uint32(b[8:])
		frame := b[16 : 16+n]
		b = b[16+n:]

		packet := frame[14+8+20:] // Ethernet, UDP, IPv4
		if binary.BigEndian.Uint16(frame[12:]) == 0x86DD {
			packet = frame[14+8+40:]
		}
		const bth, deth, icrc = 12, 8, 4
		if packet[0] != 0x64 || packet[7] != QPN || binary.BigEndian.Uint32(packet[bth:]) != QKey {
			continue
		}
		found = append(found, packet[bth+deth:len(packet)-icrc])
	}
	return found
}

const captures = "../testdata/captures/"

// TestCaptures decodes and encodes everything that Linux sent, byte for byte.
func TestCaptures(t *testing.T) {
	files, err := filepath.Glob(captures + "*.pcap")
	if err != nil || len(files) == 0 {
		t.Fatalf("no captures: %v", err)
	}
	seen := map[Attribute]int{}
	for _, file := range files {
		for i, b := range datagrams(t, file) {
			h, err := DecodeHeader(b)
			if err != nil {
				t.Errorf("%s: datagram %d: %v", file, i, err)
				continue
			}
			seen[h.Attribute]++
			m := newMessage(h.Attribute)
			if m == nil {
				t.Errorf("%s: datagram %d: %v", file, i, h.Attribute)
				continue
			}
			if err := m.Decode(b); err != nil {
				t.Errorf("%s: datagram %d: %v", file, i, err)
			}
			if got := m.Append(nil); !bytes.Equal(got, b) {
				t.Errorf("%s: datagram %d, %v:\n got %x\nwant %x", file, i, h.Attribute, got, b)
			}
		}
	}
	for _, a := range attributes {
		if seen[a] == 0 && a != AttributeMRA { // Linux had no reason to send one
			t.Errorf("no %v in the captures", a)
		}
	}
}

// TestCaptureFields looks at what a few captured messages mean.
func TestCaptureFields(t *testing.T) {
	rping := datagrams(t, captures+"rping.pcap")
	var req REQ
	if err := req.Decode(rping[0]); err != nil {
		t.Fatal(err)
	}
	client, server := netip.MustParseAddr("10.77.0.11"), netip.MustParseAddr("10.77.0.12")
	if req.Primary.LocalGID != client || req.Primary.RemoteGID != server {
		t.Errorf("GIDs %v, %v", req.Primary.LocalGID, req.Primary.RemoteGID)
	}
	var ip IPHeader
	if !ip.Decode(req.PrivateData[:]) || ip.Source != netip.AddrPortFrom(client, 0xD04B) || ip.Destination != server {
		t.Errorf("IP header %v", ip)
	}
	if port, ok := ServicePort(req.ServiceID); !ok || port != 7174 {
		t.Errorf("service ID %#x", req.ServiceID)
	}
	if req.QPN != 0x11 || req.StartingPSN != 0x74374E || req.MTU != 3 || req.Primary.AckTimeout != 19 {
		t.Errorf("REQ %+v", req)
	}
	if want := FlowLabel(0xD04B, 7174); req.Primary.FlowLabel != want {
		t.Errorf("flow label %#x, want %#x", req.Primary.FlowLabel, want)
	}

	var rej REJ
	if err := rej.Decode(datagrams(t, captures+"reject.pcap")[1]); err != nil {
		t.Fatal(err)
	}
	if rej.Reason != ReasonInvalidServiceID || rej.Message != MessageREQ || rej.LocalID != 0 {
		t.Errorf("REJ %+v", rej)
	}
}
