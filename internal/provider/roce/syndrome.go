package roce

import (
	"fmt"
	"time"
)

// IsACK reports whether s acknowledges.
func (s Syndrome) IsACK() bool { return s>>5 == 0 }

// IsRNR reports whether s says that the receiver was not ready: an RNR NAK.
func (s Syndrome) IsRNR() bool { return s>>5 == 1 }

// IsNAK reports whether s refuses: a NAK other than RNR.
func (s Syndrome) IsNAK() bool { return s>>5 == 3 }

// RNRCode returns the timer code of an RNR NAK (see RNRTimer).
func (s Syndrome) RNRCode() uint8 { return uint8(s & 31) }

// String names the syndrome.
func (s Syndrome) String() string {
	switch {
	case s.IsACK():
		return "ACK"
	case s.IsRNR():
		return fmt.Sprintf("RNR NAK %v", RNRTimer(s.RNRCode()))
	case s == SyndromePSNSequence:
		return "NAK PSN sequence error"
	case s == SyndromeInvalidRequest:
		return "NAK invalid request"
	case s == SyndromeRemoteAccess:
		return "NAK remote access error"
	case s == SyndromeRemoteOperation:
		return "NAK remote operational error"
	case s == SyndromeInvalidRDRequest:
		return "NAK invalid RD request"
	}
	return fmt.Sprintf("syndrome 0x%02x", uint8(s))
}

// rnrTimers are the times of codes 0 to 31, in units of 10 us (roce.md 2.3).
var rnrTimers = [32]uint32{
	65536, 1, 2, 3, 4, 6, 8, 12,
	16, 24, 32, 48, 64, 96, 128, 192,
	256, 384, 512, 768, 1024, 1536, 2048, 3072,
	4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
}

// RNRTimer returns how long an RNR NAK with the given code, of which the low 5 bits
// count, asks the requester to wait. Code 0 is the longest time.
func RNRTimer(code uint8) time.Duration {
	return time.Duration(rnrTimers[code&31]) * 10 * time.Microsecond
}

// RNRCode returns the code of the shortest time that is at least d, or code 0, the
// longest time, if d is longer than all.
func RNRCode(d time.Duration) uint8 {
	for code := uint8(1); code < 32; code++ {
		if RNRTimer(code) >= d {
			return code
		}
	}
	return 0
}
