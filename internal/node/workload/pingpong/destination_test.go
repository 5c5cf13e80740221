package pingpong

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A destination goes over TCP and to people as the text of ibv_rc_pingpong of
// rdma-core 44, byte for byte.
func TestDestination(t *testing.T) {
	for _, test := range []struct {
		d             destination
		wire, printed string
	}{
		{
			destination{0, 0x11, 0xa3b4c5, netip.MustParseAddr("10.77.0.11")},
			"0000:000011:a3b4c5:00000000000000000000ffff0a4d000b\x00",
			"LID 0x0000, QPN 0x000011, PSN 0xa3b4c5, GID ::ffff:10.77.0.11",
		},
		{
			destination{0x1f, 0xfffffe, 0, netip.MustParseAddr("fd77::12")},
			"001f:fffffe:000000:fd770000000000000000000000000012\x00",
			"LID 0x001f, QPN 0xfffffe, PSN 0x000000, GID fd77::12",
		},
	} {
		var b bytes.Buffer
		if err := test.d.write(&b); err != nil || b.String() != test.wire || b.Len() != 52 {
			t.Errorf("%+v is %q, %v, want %q", test.d, b.String(), err, test.wire)
		}
		if got := test.d.String(); got != test.printed {
			t.Errorf("printed as %q, want %q", got, test.printed)
		}
		if d, err := readDestination(strings.NewReader(strings.ToUpper(test.wire) + "more")); err != nil || d != test.d {
			t.Errorf("read as %+v, %v, want %+v", d, err, test.d)
		}
	}
}

func TestNoDestination(t *testing.T) {
	const good = "0000:000011:a3b4c5:00000000000000000000ffff0a4d000b\x00"
	for _, s := range []string{
		"", "done\x00", "GET / HTTP/1.1\r\nHost: server\r\n\r\n" + strings.Repeat(" ", 52), strings.Repeat("\x00", 52),
		good[:51], good[:51] + "0", // no NUL
		"000:" + good[4:], "+000" + good[4:], "0x00" + good[4:], good[:5] + "00 011" + good[11:],
		good[:18] + " " + good[19:], good[:19] + strings.Repeat("g", 32) + "\x00",
	} {
		if d, err := readDestination(strings.NewReader(s)); err == nil {
			t.Errorf("%q is %+v", s, d)
		}
	}
	for _, s := range []string{"", "done", "none\x00", "DONE\x00"} {
		if err := readDone(strings.NewReader(s)); err == nil {
			t.Errorf("%q is the end", s)
		}
	}
}

// TestDestinations: what is written is read as it was, and whatever is read is
// written so, but for upper case.
func TestDestinations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		address := rapid.SliceOfN(rapid.Byte(), 16, 16)
		d := destination{
			rapid.Uint16().Draw(t, "LID"), rapid.Uint32Max(0xFFFFFF).Draw(t, "QPN"), rapid.Uint32Max(0xFFFFFF).Draw(t, "PSN"),
			netip.AddrFrom16([16]byte(address.Draw(t, "GID"))).Unmap(),
		}
		var b bytes.Buffer
		if err := d.write(&b); err != nil {
			t.Fatal(err)
		}
		if got, err := parseDestination(b.String()); err != nil || got != d {
			t.Fatalf("read as %+v, %v, want %+v", got, err, d)
		}
		changed := b.Bytes()
		changed[rapid.IntRange(0, len(changed)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "to")
		got, err := parseDestination(string(changed))
		if err != nil {
			return
		}
		var again bytes.Buffer
		if err := got.write(&again); err != nil || !strings.EqualFold(again.String(), string(changed)) {
			t.Fatalf("%q was read as %s", changed, fmt.Sprint(got))
		}
	})
}
