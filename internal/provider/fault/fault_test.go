package fault

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// pages is memory of so many pages.
func pages(t *testing.T, n int) []byte {
	t.Helper()
	b, err := unix.Mmap(-1, 0, n*int(pageSize), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(b) })
	return b
}

func protect(t *testing.T, b []byte, rights int) {
	t.Helper()
	if err := unix.Mprotect(b, rights); err != nil {
		t.Fatal(err)
	}
}

// Every page that is touched counts, the last as well as the first, and no other.
func TestReadable(t *testing.T) {
	b, size := pages(t, 3), int(pageSize)
	for _, part := range [][2]int{{0, 3 * size}, {0, 0}, {size - 1, size + 1}, {5, 6}} {
		if !Readable(b[part[0]:part[1]]) {
			t.Errorf("%v: not readable", part)
		}
	}
	protect(t, b[2*size:], unix.PROT_NONE)
	for _, c := range []struct {
		first, last int
		want        bool
	}{{0, 2 * size, true}, {0, 2*size + 1, false}, {size + 7, 2*size + 1, false}, {2 * size, 2*size + 1, false}, {3*size - 1, 3 * size, false}, {2 * size, 2 * size, true}} {
		if got := Readable(b[c.first:c.last]); got != c.want {
			t.Errorf("%+v: %t", c, got)
		}
	}
}

// Copying reports either end, and leaves a goroutine that faults as it should otherwise.
func TestCopy(t *testing.T) {
	b, size := pages(t, 2), int(pageSize)
	own := []byte("some bytes")
	if Copy(own, nil) || Copy(nil, own) {
		t.Error("there is nothing to copy")
	}
	if !Copy(b[:len(own)], own) || string(b[:len(own)]) != string(own) {
		t.Fatal("it copies nothing")
	}
	protect(t, b[size:], unix.PROT_READ)
	if !Copy(own, b[size:size+len(own)]) {
		t.Error("memory that may be read")
	}
	if Copy(b[size-3:][:len(own)], own) {
		t.Error("memory that may not be written")
	}
	protect(t, b, unix.PROT_NONE)
	if Copy(own, b[:len(own)]) {
		t.Error("memory that may not be read")
	}
	if before := Expect(); before {
		t.Error("faults are caught for ever")
	} else {
		func() {
			ok := true
			defer Catch(before, &ok)
		}()
	}
}

// Making a packet reads its payload with instructions of its own, and is caught likewise.
func TestPacket(t *testing.T) {
	b, size := pages(t, 2), int(pageSize)
	flow := roce.Flow{Local: netip.MustParseAddr("10.0.0.1"), Remote: netip.MustParseAddr("10.0.0.2")}
	var s roce.Sealer
	makePacket := func(payload []byte) (ok bool) {
		defer Catch(Expect(), &ok)
		s.Append(nil, &flow, 0, &roce.Packet{Header: roce.Header{Opcode: roce.SendOnly}, Payload: [][]byte{payload}})
		return true
	}
	payload := b[size/2:][:roce.MaxMTU]
	if !makePacket(payload) {
		t.Error("memory that is there")
	}
	protect(t, b[size:], unix.PROT_NONE)
	if makePacket(payload) {
		t.Error("memory that is not there")
	}
}
