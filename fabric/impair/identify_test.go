package impair

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/provider/roce"
	"github.com/ndklab/ndklab/provider/roce/mad"
)

func TestIdentify(t *testing.T) {
	message := make([]byte, mad.Size)
	message[16], message[17] = 0, 0x10 // attribute: ConnectRequest
	for _, c := range []struct {
		name    string
		header  roce.Header
		payload []byte
		want    Identity
	}{
		{"WRITE", roce.Header{Opcode: roce.WriteMiddle, DestQPN: 0xabcdef, PSN: 0xfffffe, AckReq: true, BECN: true}, make([]byte, 64), Identity{Opcode: roce.WriteMiddle, QP: 0xabcdef, PSN: 0xfffffe}},
		{"NAK", roce.Header{Opcode: roce.Acknowledge, DestQPN: 17, PSN: 5, Syndrome: 0x60}, nil, Identity{Opcode: roce.Acknowledge, QP: 17, PSN: 5, Syndrome: 0x60}},
		{"connection management", roce.Header{Opcode: roce.UDSendOnly, DestQPN: mad.QPN, PSN: 1}, message, Identity{Opcode: roce.UDSendOnly, QP: mad.QPN, PSN: 1, CM: 0x10}},
		{"another datagram", roce.Header{Opcode: roce.UDSendOnly, DestQPN: 18, PSN: 1}, message, Identity{Opcode: roce.UDSendOnly, QP: 18, PSN: 1}},
	} {
		got := Identity{CM: 99, Syndrome: 99} // all of which is overwritten
		if !Identify(append(c.header.Append(nil, len(c.payload)), c.payload...), &got) {
			t.Errorf("%s: no identity", c.name)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func TestIdentifyWhatIsCutShort(t *testing.T) {
	header := roce.Header{Opcode: roce.UDSendOnly, DestQPN: mad.QPN, PSN: 1}
	whole := append(header.Append(nil, mad.Size), make([]byte, mad.Size)...)
	for n := range whole {
		var id Identity
		if got := Identify(whole[:n:n], &id); got != (n >= 12) || id.CM != 0 {
			t.Fatalf("%d bytes: %v, %+v", n, got, id)
		}
	}
	var id Identity
	if !Identify([]byte{byte(roce.Acknowledge), 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 9}, &id) || id.QP != 7 || id.PSN != 9 || id.Syndrome != 0 {
		t.Errorf("an acknowledgement without an AETH: %+v", id)
	}
}
