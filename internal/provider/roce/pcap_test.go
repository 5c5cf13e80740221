package roce

import (
	"encoding/binary"
	"os"
	"testing"
)

// readPcap returns the IP packets of a classic pcap file of Ethernet frames:
// little-endian, microseconds.
func readPcap(t testing.TB, path string) [][]byte {
	t.Helper()
	const (
		fileHeader, recordHeader = 24, 16
		ethernet, etherLen       = 1, 14
	)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	le := binary.LittleEndian
	if len(b) < fileHeader || le.Uint32(b) != 0xA1B2C3D4 || le.Uint32(b[20:]) != ethernet {
		t.Fatalf("%s: not a little-endian pcap file of Ethernet frames", path)
	}
	var packets [][]byte
	for b = b[fileHeader:]; len(b) > 0; {
		n := int(le.Uint32(b[8:]))
		if whole := int(le.Uint32(b[12:])); n != whole || n < etherLen {
			t.Fatalf("%s: frame %d has %d of %d bytes", path, len(packets), n, whole)
		}
		packets = append(packets, b[recordHeader+etherLen:recordHeader+n])
		b = b[recordHeader+n:]
	}
	return packets
}
