package mad

import (
	"path/filepath"
	"testing"
)

// FuzzDecode: no datagram brings a Decode down; exactly the one for its message
// takes it, and what that takes apart Append puts together again.
func FuzzDecode(f *testing.F) {
	f.Add(vectorREQFields().Append(nil))
	f.Add(vectorREPFields().Append(nil))
	for _, a := range attributes {
		f.Add(newMessage(a).Append(nil))
	}
	files, err := filepath.Glob(captures + "*.pcap")
	if err != nil || len(files) == 0 {
		f.Fatalf("no captures: %v", err)
	}
	for _, file := range files {
		for _, b := range datagrams(f, file) {
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		checkRoundTrip(t, b)
		h, headerErr := DecodeHeader(b)
		for _, a := range attributes {
			if err := newMessage(a).Decode(b); (err == nil) != (headerErr == nil && h.Attribute == a) {
				t.Fatalf("decoded as %v: %v; the header is of %v: %v", a, err, h.Attribute, headerErr)
			}
		}
		if q := new(REQ); q.Decode(b) == nil {
			checkIPHeader(t, q.PrivateData[:])
			if port, ok := ServicePort(q.ServiceID); ok && ServiceID(port) != q.ServiceID {
				t.Fatalf("service %#x is port %d", q.ServiceID, port)
			}
		}
		if m := new(REJ); m.Decode(b) == nil {
			if guid, ok := m.GUID(); ok {
				again := *m
				again.SetGUID(guid)
				if again.ARI != m.ARI {
					t.Fatalf("GUID %#x of ARI %x", guid, m.ARI)
				}
			}
		}
	})
}

// checkIPHeader has rdma_cm's header in private data decoded and encoded.
func checkIPHeader(t *testing.T, private []byte) {
	t.Helper()
	var first, second IPHeader
	if !first.Decode(private) {
		return
	}
	var again [IPHeaderSize]byte
	first.Put(again[:])
	if !second.Decode(again[:]) || second != first {
		t.Fatalf("IP header %v becomes %v", first, second)
	}
}
