package congestion

import (
	"cmp"
	"math"
	"time"
)

// A reactionPoint is the sender's half of DCQCN for one queue pair.
//
// Three clocks run from the first CNP on: alpha is updated each DCETCPRTT, and cuts are possible
// each RateReduceMonitorPeriod; the increase timer begins anew with each cut. None of them is an
// event: a call first makes up for what they did since the call before, in the order of time. Of
// what falls on one instant, alpha's update is first, then the increase, the cut, and the call.
//
// Once the rate is back at the line's nothing is forgotten (the reference simulator does not
// either), but nothing changes any more except alpha: there is no Deadline then.
type reactionPoint struct {
	p       *DCQCN
	maxRate float64

	rate, target float64 // rate <= target <= maxRate
	alpha        float64 // as of the last update before alphaAt
	alphaAt      time.Duration
	increaseAt   time.Duration // by the timer; never before the first cut
	checkAt      time.Duration // when a cut is possible: the next time if cutDue, else any
	bytesLeft    int64         // to the increase by the byte counter
	// Increases since the last cut, by the timer and by the byte counter.
	timeStage, byteStage int32

	notified      bool // there was a CNP ever
	alphaNotified bool // there was one since the last update of alpha, other than the first of all
	cutDue        bool // there was one since the last cut
}

const (
	never = time.Duration(math.MaxInt64)
	// Checks come this much after the update of alpha that is due with them, as in the reference
	// simulator, whose traces show a first cut 4,001 ns after the first CNP.
	afterAlpha = time.Nanosecond
	// A rate that lacks fewer bits per second than this to its target has reached it.
	reached = 1000
	// unknownLineRate, in bits per second, is about what a link carries in a lab that is given no rate.
	unknownLineRate = 10e9
	// Stages beyond this are all alike.
	maxStage = 1 << 30
)

// NewDCQCN returns the reaction point of a queue pair on a line of so many bits per second; 0: of
// 10 Gb/s. The parameters must be valid, and stay so: they are not copied.
func NewDCQCN(p *DCQCN, lineRate float64) Control {
	return newReactionPoint(p, lineRate)
}

func newReactionPoint(p *DCQCN, lineRate float64) *reactionPoint {
	r := &reactionPoint{p: p, maxRate: cmp.Or(lineRate, unknownLineRate), alphaAt: never, increaseAt: never}
	if p.RPGMaxRate > 0 {
		r.maxRate = min(r.maxRate, p.RPGMaxRate)
	}
	r.rate, r.target = r.maxRate, r.maxRate
	return r
}

// Sent implements Control.
func (r *reactionPoint) Sent(now time.Duration, bytes int) {
	r.advance(now)
	if r.p.RPGByteReset <= 0 || r.increaseAt == never {
		return
	}
	r.bytesLeft -= int64(bytes)
	for r.bytesLeft <= 0 {
		r.bytesLeft += r.p.RPGByteReset
		r.increase()
		r.byteStage = min(r.byteStage+1, maxStage)
	}
}

// Notified implements Control.
func (r *reactionPoint) Notified(now time.Duration) {
	r.advance(now)
	period := r.p.RateReduceMonitorPeriod
	if r.notified {
		r.updateAlpha(now)
		r.alphaNotified = true
	} else {
		r.notified = true
		r.alpha = r.p.InitialAlphaValue
		r.alphaAt = after(now, r.p.DCETCPRTT)
		r.checkAt = now + period + afterAlpha
		if first := r.p.RateToSetOnFirstCNP; first > 0 {
			r.rate = min(max(first, r.minRate()), r.maxRate)
			r.target = r.rate
		}
	}
	switch {
	case period <= 0:
		r.cut(now)
	case !r.cutDue:
		r.cutDue = true
		if r.checkAt <= now {
			r.checkAt += ((now-r.checkAt)/period + 1) * period
		}
	}
}

// Lost implements Control: with SlowRestart it is a CNP.
func (r *reactionPoint) Lost(now time.Duration) bool {
	if r.p.SlowRestart {
		r.Notified(now)
	}
	return r.p.SlowRestart
}

// Acknowledged implements Control. DCQCN hears of marks alone.
func (r *reactionPoint) Acknowledged(time.Duration, Ack) {}

// Window implements Control.
func (r *reactionPoint) Window() int64 { return 0 }

// Rate implements Control.
func (r *reactionPoint) Rate(now time.Duration) float64 {
	r.advance(now)
	return r.rate
}

// Observe implements Observable. It advances a copy: increases that are carried out one by one, and not many at once, may
// differ in their last bits.
func (r *reactionPoint) Observe(now time.Duration) (rate, target float64) {
	then := *r
	then.advance(now)
	return then.rate, then.target
}

// Deadline implements Control. In fast recovery it may name an increase that changes nothing, if
// the rate could not be cut below its target.
func (r *reactionPoint) Deadline() (time.Duration, bool) {
	at := never
	if r.cutDue {
		at = r.checkAt
	}
	if r.increaseAt < at && !r.settled() {
		at = r.increaseAt
	}
	if at == never {
		return 0, false
	}
	return at, true
}

// advance carries out the increases and cuts that are due.
func (r *reactionPoint) advance(now time.Duration) {
	for {
		until := now
		if r.cutDue {
			until = min(now, r.checkAt)
		}
		switch {
		case r.increaseAt <= until:
			r.increaseByTimer(until)
		case r.cutDue && r.checkAt <= now:
			r.cut(r.checkAt)
		default:
			return
		}
	}
}

// updateAlpha carries out the updates of alpha that are due. Only the first of them can follow a
// CNP; all others together are a power, as they may be a million per second.
func (r *reactionPoint) updateAlpha(now time.Duration) {
	if now < r.alphaAt {
		return
	}
	n := (now-r.alphaAt)/r.p.DCETCPRTT + 1
	r.alphaAt += n * r.p.DCETCPRTT
	g := r.p.DCETCPG
	if r.alphaNotified {
		r.alphaNotified = false
		r.alpha = (1-g)*r.alpha + g
		n--
	}
	switch n {
	case 0:
	case 1:
		r.alpha *= 1 - g
	default:
		r.alpha *= math.Pow(1-g, float64(n))
	}
}

// cut lowers the rate.
func (r *reactionPoint) cut(at time.Duration) {
	r.updateAlpha(at)
	if r.p.ClampTgtRate || r.p.ClampTgtRateAfterTimeInc && r.timeStage > 0 {
		r.target = r.rate
	}
	left := max(1-math.Ldexp(r.alpha, 10-r.p.RPGGD), r.p.RPGMinDecFac)
	r.rate = max(r.rate*left, r.minRate())
	r.cutDue = false
	r.timeStage, r.byteStage = 0, 0
	r.bytesLeft = r.p.RPGByteReset
	r.increaseAt = after(at, r.p.RPGTimeReset)
}

// minRate returns the least rate. It is never 0, which would mean any rate.
func (r *reactionPoint) minRate() float64 { return min(max(r.p.RPGMinRate, 1), r.maxRate) }

// increaseByTimer carries out the increase that is due by the timer, and as many of those that are
// due until a given time as can be carried out at once.
func (r *reactionPoint) increaseByTimer(until time.Duration) {
	due := int64((until-r.increaseAt)/r.p.RPGTimeReset) + 1
	n := int64(1)
	if r.settled() {
		n = due
	} else if many := r.equalIncreases(due); many > 1 {
		n = many
		// Each adds step to the target, and halves what the rate then lacks to it.
		step := r.step()
		lack := step + math.Ldexp(r.target-r.rate-step, -int(n))
		r.target += float64(n) * step
		r.rate = r.target - lack
	} else {
		r.increase()
	}
	r.timeStage = int32(min(int64(r.timeStage)+n, maxStage))
	r.increaseAt += time.Duration(n) * r.p.RPGTimeReset
}

// equalIncreases returns how many of the next so many increases by the timer raise the target by
// the same step, without reaching the greatest rate.
func (r *reactionPoint) equalIncreases(due int64) int64 {
	step := r.step()
	if int(r.timeStage) <= r.p.RPGThreshold || step <= 0 {
		return 0
	}
	return int64(min(float64(due), math.Ceil((r.maxRate-r.target)/step)-1))
}

// increase raises the target by what the stages call for, and the rate half the way there.
func (r *reactionPoint) increase() {
	r.target = min(r.target+r.step(), r.maxRate)
	r.rate += (r.target - r.rate) / 2
	if r.target-r.rate < reached {
		r.rate = r.target
	}
}

// step returns by how much an increase raises the target: not at all in fast recovery, by
// RPGHAIRate once the timer and the byte counter are beyond it, and by RPGAIRate in between.
func (r *reactionPoint) step() float64 {
	t, b, threshold := r.timeStage, r.byteStage, int32(r.p.RPGThreshold)
	if r.p.RPGByteReset <= 0 {
		b = t
	}
	switch {
	case max(t, b) < threshold:
		return 0
	case min(t, b) > threshold:
		return r.p.RPGHAIRate
	}
	return r.p.RPGAIRate
}

// settled reports whether the timer changes nothing any more but its stage.
func (r *reactionPoint) settled() bool {
	return r.rate == r.target &&
		(r.target == r.maxRate || int(r.timeStage) > r.p.RPGThreshold && r.step() == 0)
}

// after returns the time a period later; never for the period 0 of parameters that nobody set.
func after(now, period time.Duration) time.Duration {
	if period <= 0 {
		return never
	}
	return now + period
}
