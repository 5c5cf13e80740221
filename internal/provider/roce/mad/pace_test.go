package mad

import (
	"errors"
	"testing"
)

func TestPace(t *testing.T) {
	answer := Answer{Mark: Mark{ID: 1 << 63, Sent: 2 << 56, At: 3 << 48, Taken: 4 << 40, Since: 5 << 32}, Window: 6 << 24}
	for _, test := range []struct {
		datagram []byte
		want     Answer
		isAnswer bool
	}{{answer.Mark.Append(nil), Answer{Mark: answer.Mark}, false}, {answer.Append(nil), answer, true}} {
		var got Answer
		isAnswer, err := got.Decode(test.datagram)
		if err != nil || got != test.want || isAnswer != test.isAnswer || len(test.datagram) != Size {
			t.Errorf("%d bytes are %+v, %v, %v, want %+v, %v", len(test.datagram), got, isAnswer, err, test.want, test.isAnswer)
		}
		if _, err := DecodeHeader(test.datagram); !errors.Is(err, ErrMalformed) {
			t.Errorf("connection management takes it: %v", err)
		}
		for _, at := range []int{0, 1, 2, 3, 16, 17, vendorOffset, vendorOffset + 3} {
			other := append([]byte(nil), test.datagram...)
			other[at] ^= 0x40
			if _, err := got.Decode(other); !errors.Is(err, ErrMalformed) {
				t.Errorf("with another byte %d: %v, want ErrMalformed", at, err)
			}
		}
		if _, err := got.Decode(test.datagram[:Size-1]); !errors.Is(err, ErrMalformed) {
			t.Errorf("too short: %v, want ErrMalformed", err)
		}
	}
	if IsPace((&SIDRREQ{}).Append(nil)) {
		t.Error("a SIDR_REQ is taken for one")
	}
}
