package mad

import "time"

// A Timeout is a time as CM messages and queue pairs carry it: the exponent n of
// 4.096 us * 2^n, in 5 bits (roce.md 10.6). As an ACK timeout, 0 means never.
type Timeout uint8

// MaxTimeout is the longest time that the 5 bits express, about 2.4 hours.
const MaxTimeout Timeout = 31

// Duration is the time that t stands for.
func (t Timeout) Duration() time.Duration {
	return 4096 * time.Nanosecond << min(t, MaxTimeout)
}

// TimeoutAtLeast is the shortest Timeout that is not shorter than d, or
// MaxTimeout.
func TimeoutAtLeast(d time.Duration) Timeout {
	t := Timeout(0)
	for t < MaxTimeout && t.Duration() < d {
		t++
	}
	return t
}

// AckTimeout is the local ACK timeout of a connection whose packets live for
// life on the path, to a peer that takes up to delay to acknowledge. The rule is
// the kernel's (cm_ack_timeout in drivers/infiniband/core/cm.c).
func AckTimeout(life, delay Timeout) Timeout {
	t := life + 1
	switch {
	case t >= delay:
		if delay >= life {
			t++
		}
	case t+1 >= delay:
		t = delay + 1
	default:
		t = delay
	}
	return min(t, MaxTimeout)
}
