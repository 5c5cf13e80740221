package rc

import (
	"math"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// minTimer is the shortest time to set a timer for.
const minTimer = 20 * time.Microsecond

// timers say when a requester is to ask the peer how far it has got (the probe timeout of
// RFC 8985, 7), when to go on sending, and when to give up.
type timers struct {
	roundTrip roundTrip
	path      peerPath

	ptoAt      time.Duration // when to send a probe, if anything is in flight
	recheckAt  time.Duration // when to try to send again, though nothing arrives; 0 for not
	progressAt time.Duration // when something was last acknowledged, or first sent
	heardAt    time.Duration // when the responder last said anything
	rnrUntil   time.Duration // when to try again after an RNR NAK
	rnrWaiting bool          // for rnrUntil (roce.md 6.3, 7)
	rnrLeft    int8          // RNR NAKs that are allowed until there is progress
	ptoCount   int8          // probe timeouts since heardAt, 2 at most
	retries    int8          // times that the oldest packet was sent again
}

// startPTO starts the probe timeout anew.
func (t *timers) startPTO(from time.Duration) { t.ptoAt = from + t.roundTrip.timeout() }

// expirePTO notes a probe timeout.
func (t *timers) expirePTO(now time.Duration) {
	t.roundTrip.backOff()
	if t.ptoCount == 0 {
		t.path.askedAt = now
	}
	t.ptoCount = min(t.ptoCount+1, 2)
	t.startPTO(now)
}

// peerLost reports whether all that is in flight has to be taken for lost, or the peer for gone: two probe
// timeouts have passed in silence. One may be the fault of a host that was busy, and then
// of many connections at the same time.
func (t *timers) peerLost() bool { return t.ptoCount > 1 }

// noteHeard notes that the responder has said something.
func (t *timers) noteHeard(now time.Duration) { t.heardAt, t.ptoCount = now, 0 }

// noteProgress restarts whatever counts time or tries without progress.
func (t *timers) noteProgress(now time.Duration, rnrRetries int) {
	t.progressAt = now
	t.startPTO(now)
	t.rnrLeft, t.retries, t.rnrWaiting = int8(rnrRetries), 0, false
}

// countRetry counts that the oldest packet is sent again.
func (t *timers) countRetry() {
	if t.retries < math.MaxInt8 {
		t.retries++
	}
}

// startRNRWait waits as an RNR NAK says (roce.md 6.3, 7); false if there were too many.
func (t *timers) startRNRWait(now time.Duration, s roce.Syndrome) bool {
	t.path.noteAnswered(t.rnrUntil) // what was sent again then, or later
	if t.rnrLeft == 0 {
		return false
	}
	if t.rnrLeft != 7 {
		t.rnrLeft--
	}
	t.rnrWaiting = true
	t.rnrUntil = now + roce.RNRTimer(s.RNRCode())
	t.progressAt = t.rnrUntil // the peer is alive
	t.startPTO(t.rnrUntil)
	return true
}

// deadline returns the end of an RNR wait, or else the earliest of the times to give
// up, to probe, if probing says that there is anything to ask for, and to go on sending.
func (t *timers) deadline(c *Connection, probing bool) (time.Duration, bool) {
	if t.rnrWaiting {
		return t.rnrUntil, true
	}
	at, ok := t.giveUpAt(c)
	if probing && (!ok || t.ptoAt < at) {
		at, ok = t.ptoAt, true
	}
	if t.recheckAt > 0 && (!ok || t.recheckAt < at) {
		at, ok = t.recheckAt, true
	}
	return at, ok
}

// giveUpAt returns the time at which a NIC would have used up its retries; false if never.
// A peer that says anything at all is there, so the time counts since it last did. If that
// does not help, as where only short packets pass, it counts since the last progress as soon
// as the oldest packet has been sent as often as a NIC would. On a path that is slower than
// the AckTimeout, as behind a deep queue, a retry takes as long as the path. A peer that is
// dead is given up after RetryCount+1 AckTimeouts at the earliest, and at the latest after
// those or longestSilence, whichever is longer; where the path was never measured to be
// slow, after longestUnmeasured. A peer whose answer may wait behind what else comes from its
// address is waited for while that comes (peerPath).
func (t *timers) giveUpAt(c *Connection) (time.Duration, bool) {
	if c.AckTimeout == 0 {
		return 0, false
	}
	since, useless := t.lastSign(), int(t.retries) > c.RetryCount
	if useless {
		since = t.progressAt
	}
	tries := time.Duration(c.RetryCount + 1)
	measured := min(tries*t.roundTrip.rto(), longestSilence)
	supposed := min(tries*max(t.roundTrip.upperBound(), t.path.known.Slow), longestUnmeasured)
	at := since + max(tries*c.AckTimeout, measured, supposed)
	if t.ptoCount > 0 && !useless && t.path.answerMayBeUnderWay() {
		at = max(at, min(t.path.known.Heard+tries*c.AckTimeout, since+longestSilence))
	}
	return at, true
}

// lastSign returns when the peer last showed that it is there.
func (t *timers) lastSign() time.Duration { return max(t.progressAt, t.heardAt) }

// postponeGivingUp says that for so long nobody was there to hear the peer.
func (t *timers) postponeGivingUp(d time.Duration) {
	t.progressAt += d
	t.heardAt += d
	t.path.known.Heard += d
}

// longestSilence bounds the time of a path that is slower than the AckTimeout: as long as
// there may be between the two halves of making a connection.
const longestSilence = 90 * time.Second

// longestUnmeasured does so for a path of which only an upper bound is known: what an
// outage has held up looks the same.
const longestUnmeasured = 15 * time.Second
