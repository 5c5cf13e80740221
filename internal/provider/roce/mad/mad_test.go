package mad

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// message has the methods that all messages have in common.
type message interface {
	Append(b []byte) []byte
	Decode(b []byte) error
}

// newMessage is an empty message of a kind; nil for kinds that are not decoded.
func newMessage(a Attribute) message {
	switch a {
	case AttributeREQ:
		return new(REQ)
	case AttributeMRA:
		return new(MRA)
	case AttributeREJ:
		return new(REJ)
	case AttributeREP:
		return new(REP)
	case AttributeRTU:
		return new(RTU)
	case AttributeDREQ:
		return new(DREQ)
	case AttributeDREP:
		return new(DREP)
	case AttributeSIDRREQ:
		return new(SIDRREQ)
	case AttributeSIDRREP:
		return new(SIDRREP)
	}
	return nil
}

var attributes = []Attribute{
	AttributeREQ, AttributeMRA, AttributeREJ, AttributeREP, AttributeRTU,
	AttributeDREQ, AttributeDREP, AttributeSIDRREQ, AttributeSIDRREP,
}

// unhex decodes hexadecimal digits with white space among them, and pads the
// result with zeros to one datagram.
func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return append(b, make([]byte, Size-len(b))...)
}

// The REQ of roce.md section 18.
const vectorREQ = `
	01070203000000000000000187654321 0010 0000 00000000
	87654321 00000000 0000000001061c06 020000fffe000001 00000000 00000000
	00001101 00000001 000000a0 123456a7 ffff 37 f0 ffff ffff
	00000000000000000000ffff0a000001 00000000000000000000ffff0a000002 307c6000 00 40 00 88
	0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000
	00 40 9c40 0000000000000000000000000a000001 0000000000000000000000000a000002`

func vectorREQFields() *REQ {
	m := &REQ{
		TransactionID:         0x187654321,
		LocalID:               0x87654321,
		ServiceID:             ServiceID(7174),
		GUID:                  0x020000FFFE000001,
		QPN:                   0x11,
		ResponderResources:    1,
		InitiatorDepth:        1,
		RemoteResponseTimeout: 20,
		StartingPSN:           0x123456,
		LocalResponseTimeout:  20,
		RetryCount:            7,
		PKey:                  0xFFFF,
		MTU:                   3,
		RNRRetryCount:         7,
		MaxCMRetries:          15,
		Primary: Path{
			LocalLID:   0xFFFF,
			RemoteLID:  0xFFFF,
			LocalGID:   netip.MustParseAddr("10.0.0.1"),
			RemoteGID:  netip.MustParseAddr("10.0.0.2"),
			FlowLabel:  FlowLabel(0x9C40, 7174),
			HopLimit:   64,
			AckTimeout: 17,
		},
	}
	IPHeader{
		Source:      netip.MustParseAddrPort("10.0.0.1:40000"),
		Destination: netip.MustParseAddr("10.0.0.2"),
	}.Put(m.PrivateData[:])
	return m
}

// The REP of roce.md section 18.
const vectorREP = `
	01070203000000000000000187654321 0013 0000 00000000
	abcdef01 87654321 00000000 00001200 00000000 65432100 01 01 78 e0 020000fffe000002`

func vectorREPFields() *REP {
	return &REP{
		TransactionID:      0x187654321,
		LocalID:            0xABCDEF01,
		RemoteID:           0x87654321,
		QPN:                0x12,
		StartingPSN:        0x654321,
		ResponderResources: 1,
		InitiatorDepth:     1,
		TargetAckDelay:     15,
		RNRRetryCount:      7,
		GUID:               0x020000FFFE000002,
	}
}

// TestLayout checks every message's layout against bytes written by hand from
// the tables of roce.md 10.1 to 10.4.
func TestLayout(t *testing.T) {
	rej := &REJ{
		TransactionID: 0x1122334455667788,
		LocalID:       0xA1A2A3A4,
		RemoteID:      0xB1B2B3B4,
		Message:       MessageOther,
		Reason:        ReasonTimeout,
		PrivateData:   [REJPrivateData]byte{0xDA, 0x7A},
	}
	rej.SetGUID(0x0102030405060708)
	const head = "01070203 00000000 1122334455667788 "
	for _, tt := range []struct {
		name string
		m    message
		want string
	}{
		{"vector REQ", vectorREQFields(), vectorREQ},
		{"vector REP", vectorREPFields(), vectorREP},
		{"REQ, rare fields", &REQ{
			TransactionID:     0x1122334455667788,
			QKey:              0x0A0B0C0D,
			QPN:               0xABCDEF,
			TransportType:     3,
			FlowControl:       true,
			SRQ:               true,
			ExtendedTransport: 1,
			ECE:               ECE{Vendor: 0xE1E2E3, Options: 0xF1F2F3F4},
			Alternate: Path{
				LocalLID: 0x0102, RemoteLID: 0x0304,
				LocalGID: netip.MustParseAddr("fd00::1"), RemoteGID: netip.MustParseAddr("fd00::2"),
				FlowLabel: 0xABCDE, PacketRate: 0x15, TrafficClass: 0x68, HopLimit: 1, SL: 5, SubnetLocal: true, AckTimeout: 31,
			},
		}, head + `0010 0000 f1f2f3f4
			00000000 00e1e2e3 0000000000000000 0000000000000000 00000000 0a0b0c0d
			abcdef00 00000000 00000007 00000000 0000 00 09 0000 0000
			00000000000000000000000000000000 00000000000000000000000000000000 00000000 00 00 00 00
			0102 0304 fd000000000000000000000000000001 fd000000000000000000000000000002 abcde015 68 01 58 f8`},
		{"REP, rare fields", &REP{
			TransactionID: 0x1122334455667788, QKey: 0x0A0B0C0D, Failover: FailoverUnsupported, FlowControl: true, SRQ: true,
			ECE:         ECE{Vendor: 0xE1E2E3, Options: 0xF1F2F3F4},
			PrivateData: [REPPrivateData]byte{0xDA, 0x7A},
		}, head + "0013 0000 f1f2f3f4 00000000 00000000 0a0b0c0d 000000e1 000000e2 000000e3 00 00 03 10 0000000000000000 da7a"},
		{"RTU", &RTU{
			TransactionID: 0x1122334455667788, LocalID: 0xA1A2A3A4, RemoteID: 0xB1B2B3B4, PrivateData: [RTUPrivateData]byte{0xDA, 0x7A},
		}, head + "0014 0000 00000000 a1a2a3a4 b1b2b3b4 da7a"},
		{"MRA", &MRA{
			TransactionID: 0x1122334455667788, LocalID: 0xA1A2A3A4, RemoteID: 0xB1B2B3B4,
			Message: MessageREP, ServiceTimeout: 24, PrivateData: [MRAPrivateData]byte{0xDA, 0x7A},
		}, head + "0011 0000 00000000 a1a2a3a4 b1b2b3b4 40 c0 da7a"},
		{"REJ", rej, head + "0012 0000 00000000 a1a2a3a4 b1b2b3b4 80 10 0004 0102030405060708" + strings.Repeat("00", 64) + "da7a"},
		{"DREQ", &DREQ{
			TransactionID: 0x1122334455667788, LocalID: 0xA1A2A3A4, RemoteID: 0xB1B2B3B4, RemoteQPN: 0xC1C2C3,
			PrivateData: [DREQPrivateData]byte{0xDA, 0x7A},
		}, head + "0015 0000 00000000 a1a2a3a4 b1b2b3b4 c1c2c300 da7a"},
		{"DREP", &DREP{
			TransactionID: 0x1122334455667788, LocalID: 0xA1A2A3A4, RemoteID: 0xB1B2B3B4, PrivateData: [DREPPrivateData]byte{0xDA, 0x7A},
		}, head + "0016 0000 00000000 a1a2a3a4 b1b2b3b4 da7a"},
		{"SIDR_REQ", &SIDRREQ{
			TransactionID: 0x1122334455667788, RequestID: 0xA1A2A3A4, PKey: 0xFFFF, ServiceID: 0x0000000001111234,
			PrivateData: [SIDRREQPrivateData]byte{0xDA, 0x7A},
		}, head + "0017 0000 00000000 a1a2a3a4 ffff 0000 0000000001111234 da7a"},
		{"SIDR_REP", &SIDRREP{
			TransactionID: 0x1122334455667788, RequestID: 0xA1A2A3A4, Status: SIDRUnsupported, ARILength: 2, QPN: 0xC1C2C3,
			ServiceID: 0x0000000001111234, QKey: 0x01234567, ARI: [72]byte{0xEE, 0xFF}, PrivateData: [SIDRREPPrivateData]byte{0xDA, 0x7A},
		}, head + "0018 0000 00000000 a1a2a3a4 01 02 0000 c1c2c300 0000000001111234 01234567 eeff" + strings.Repeat("00", 70) + "da7a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := unhex(t, tt.want)
			if diff := cmp.Diff(want, tt.m.Append(nil)); diff != "" {
				t.Errorf("encoded (-want +got):\n%s", diff)
			}
			h, err := DecodeHeader(want)
			if err != nil {
				t.Fatal(err)
			}
			got := newMessage(h.Attribute)
			if err := got.Decode(want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.m, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Errorf("decoded (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecodeRefusesOthers(t *testing.T) {
	good := vectorREQFields().Append(nil)
	changed := func(i int, v byte) []byte {
		b := bytes.Clone(good)
		b[i] = v
		return b
	}
	for name, b := range map[string][]byte{
		"empty":                    nil,
		"short":                    good[:Size-1],
		"long":                     append(bytes.Clone(good), 0),
		"base version":             changed(0, 2),
		"subnet management":        changed(1, 0x81),
		"class version":            changed(2, 1),
		"method Get":               changed(3, 1),
		"another message, the REP": changed(17, 0x13),
	} {
		var q REQ
		if err := q.Decode(b); err != ErrMalformed {
			t.Errorf("%s: got %v, want ErrMalformed", name, err)
		}
		if q != (REQ{}) {
			t.Errorf("%s: something was decoded", name)
		}
	}
}

// TestRoundTrip says that whatever is decoded encodes to the same message, even
// if reserved bits were set.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.SampledFrom(attributes).Draw(t, "attribute")
		b := rapid.SliceOfN(rapid.Byte(), Size, Size).Draw(t, "datagram")
		copy(b, []byte{1, 7, 2, 3})
		b[16], b[17] = byte(a>>8), byte(a)
		checkRoundTrip(t, b)
	})
}

type fataler interface {
	Fatalf(format string, args ...any)
}

func checkRoundTrip(t fataler, b []byte) {
	h, err := DecodeHeader(b)
	if err != nil {
		return
	}
	first, second := newMessage(h.Attribute), newMessage(h.Attribute)
	if first == nil {
		return
	}
	if err := first.Decode(b); err != nil {
		t.Fatalf("%v: header is good, message is not: %v", h.Attribute, err)
	}
	encoded := first.Append(nil)
	if len(encoded) != Size {
		t.Fatalf("%v: %d bytes", h.Attribute, len(encoded))
	}
	if err := second.Decode(encoded); err != nil {
		t.Fatalf("%v: %v", h.Attribute, err)
	}
	if diff := cmp.Diff(first, second, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Fatalf("%v (-first +second):\n%s", h.Attribute, diff)
	}
	if again := second.Append(nil); !bytes.Equal(encoded, again) {
		t.Fatalf("%v: encodes to\n%x, then to\n%x", h.Attribute, encoded, again)
	}
}

func TestAppendKeepsWhatIsThere(t *testing.T) {
	b := vectorREPFields().Append([]byte("before"))
	if string(b[:6]) != "before" || !bytes.Equal(b[6:], vectorREPFields().Append(nil)) {
		t.Errorf("got %x", b)
	}
}

func TestNoAllocation(t *testing.T) {
	buf := make([]byte, 0, Size)
	for _, a := range attributes {
		m := newMessage(a)
		if n := testing.AllocsPerRun(100, func() {
			b := m.Append(buf)
			if err := m.Decode(b); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%v: %v allocations", a, n)
		}
	}
}

func TestServiceID(t *testing.T) {
	if got := ServiceID(7174); got != 0x0000000001061C06 {
		t.Errorf("ServiceID(7174) = %#x", got)
	}
	for _, tt := range []struct {
		id   uint64
		port uint16
		ok   bool
	}{
		{0x01061C06, 7174, true},
		{0x01060000, 0, true},
		{0x0106FFFF, 65535, true},
		{0x01111C06, 0, false},         // the UDP port space
		{0x1000001061C06, 0, false},    // a bit too many
		{0x1000000000000000, 0, false}, // an InfiniBand service
	} {
		port, ok := ServicePort(tt.id)
		if ok != tt.ok || ok && port != tt.port {
			t.Errorf("ServicePort(%#x) = %d, %v", tt.id, port, ok)
		}
	}
}

func TestIPHeader(t *testing.T) {
	for _, tt := range []struct {
		name string
		h    IPHeader
		want string
	}{
		{"IPv4", IPHeader{netip.MustParseAddrPort("10.0.0.1:40000"), netip.MustParseAddr("10.0.0.2")},
			"00409c40 0000000000000000000000000a000001 0000000000000000000000000a000002"},
		{"IPv6", IPHeader{netip.MustParseAddrPort("[fd77::11]:44775"), netip.MustParseAddr("fd77::12")},
			"0060aee7 fd770000000000000000000000000011 fd770000000000000000000000000012"},
	} {
		want, err := hex.DecodeString(strings.ReplaceAll(tt.want, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		got := bytes.Repeat([]byte{0xEE}, IPHeaderSize) // Put overwrites all of it
		tt.h.Put(got)
		if !bytes.Equal(got, want) {
			t.Errorf("%s: got %x, want %x", tt.name, got, want)
		}
		var h IPHeader
		if !h.Decode(want) || h != tt.h {
			t.Errorf("%s: decoded %v", tt.name, h)
		}
		for _, bad := range [][2]byte{{1, want[1]}, {0x10, want[1]}, {0, 0}, {0, 0x50}} {
			copy(want, bad[:])
			if h.Decode(want) {
				t.Errorf("%s: version bytes %x were decoded", tt.name, bad)
			}
		}
	}
}

// TestFlowLabel uses what Linux sent in the captures rping and rping-ipv6.
func TestFlowLabel(t *testing.T) {
	if got := FlowLabel(0xD04B, 7174); got != 0x9551B {
		t.Errorf("got %#x", got)
	}
	if got := FlowLabel(0xAEE7, 7174); got != 0x549FF {
		t.Errorf("got %#x", got)
	}
}

func TestTimeout(t *testing.T) {
	for _, tt := range []struct {
		t Timeout
		d time.Duration
	}{
		{0, 4096 * time.Nanosecond},
		{1, 8192 * time.Nanosecond},
		{17, 536870912 * time.Nanosecond},
		{20, 4294967296 * time.Nanosecond},
		{31, 8796093022208 * time.Nanosecond},
	} {
		if got := tt.t.Duration(); got != tt.d {
			t.Errorf("Timeout(%d).Duration() = %v, want %v", tt.t, got, tt.d)
		}
		if got := tt.t.Ack(); tt.t == 0 && got != 0 || tt.t != 0 && got != tt.d {
			t.Errorf("Timeout(%d).Ack() = %v", tt.t, got)
		}
	}
}

func TestNames(t *testing.T) {
	for _, tt := range []struct{ got, want string }{
		{AttributeREQ.String(), "REQ"},
		{AttributeREJ.String(), "REJ"},
		{AttributeAPR.String(), "APR"},
		{Attribute(1).String(), "attribute 0x0001"},
		{Attribute(0x1B).String(), "attribute 0x001b"},
		{ReasonTimeout.String(), "timeout"},
		{ReasonConsumer.String(), "rejected by the consumer"},
		{ReasonVendorOption.String(), "vendor option not supported"},
		{Reason(0).String(), "reason 0"},
		{Reason(34).String(), "reason 34"},
		{Reason(99).String(), "reason 99"},
	} {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
}

// TestNumbers pins the attribute IDs of roce.md 10.1 that the captures lack.
func TestNumbers(t *testing.T) {
	if AttributeMRA != 0x11 || AttributeSIDRREP != 0x18 || AttributeLAP != 0x19 || AttributeAPR != 0x1A {
		t.Error("attribute IDs are not those of roce.md 10.1")
	}
}
