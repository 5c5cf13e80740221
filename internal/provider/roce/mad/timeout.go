package mad

import "time"

// A Timeout is a time as CM messages and queue pairs carry it: the exponent n of
// 4.096 us * 2^n, in 5 bits (roce.md 10.6). As an ACK timeout, 0 means never.
type Timeout uint8

// MaxTimeout is the longest time that the 5 bits express, about 2.4 hours.
const MaxTimeout Timeout = 31

// Duration returns the time that t stands for.
func (t Timeout) Duration() time.Duration {
	return 4096 * time.Nanosecond << min(t, MaxTimeout)
}

// Ack returns the time that t stands for as an ACK timeout; 0 is never.
func (t Timeout) Ack() time.Duration {
	if t == 0 {
		return 0
	}
	return t.Duration()
}
