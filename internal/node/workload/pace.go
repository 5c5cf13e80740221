package workload

import "time"

// A pace holds a client to a rate of payload.
type pace struct {
	rate uint64        // bits per second; 0: no limit
	due  time.Duration // when the next message may be posted, if there is a limit
}

// paceSlack bounds how far a client may be behind its rate and make up for it: timers of a
// machine are late, by some milliseconds where it is busy.
const paceSlack = 10 * time.Millisecond

// wait returns how long it is from now until a message may be posted; 0 or less: none.
func (p *pace) wait(now time.Duration) time.Duration {
	if p.rate == 0 {
		return 0
	}
	return p.due - now
}

// spend counts a message of size bytes that is posted now.
func (p *pace) spend(now time.Duration, size uint64) {
	if p.rate > 0 {
		p.due = max(p.due, now-paceSlack) + time.Duration(float64(size)*8*float64(time.Second)/float64(p.rate))
	}
}
