// Package estimate says how far long work is, and how long it still takes: of a suite, a sweep, a run,
// a lab that comes up. It knows no clock: whoever asks says what time it is.
//
// Start reading at Work.
package estimate

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// A Work is long work, whose parts have a cost each, in any unit that is the same for all: seconds that
// a lab takes, or 1 for each run. The estimate takes the rest to go on as fast as the parts that are done, so that
// parts that run side by side need no word about it. The caller owns it: its methods are for one goroutine at a time.
type Work struct {
	total   float64 // cost of all parts
	before  float64 // of those that were done when it began
	done    float64 // of those done since
	running float64 // done of those that are under way
	began   time.Time
}

// Begin returns work of that total cost, of which some was done before.
func Begin(now time.Time, total, before float64) *Work {
	return &Work{total: total, before: before, began: now}
}

// Done notes that parts of a cost are done.
func (w *Work) Done(cost float64) { w.done += cost }

// Running notes how much is done of all parts that are under way together.
func (w *Work) Running(cost float64) { w.running = cost }

// Far returns how far the work is, from 0 to 1.
func (w *Work) Far() float64 {
	if w.total <= 0 {
		return 0
	}
	return min((w.before+w.done+w.running)/w.total, 1)
}

// Soon is the time after which there is something to go by.
const Soon = time.Second

// Left returns how long the work still takes. ok is false as long as there is too little to go by.
func (w *Work) Left(now time.Time) (left time.Duration, ok bool) {
	since, did := now.Sub(w.began), w.done+w.running
	if since < Soon || did <= 0 || w.total <= 0 {
		return 0, false
	}
	remaining := max(w.total-w.before-did, 0)
	seconds := since.Seconds() * remaining / did
	if seconds > math.MaxInt64/1e9/2 {
		return 0, false
	}
	return time.Duration(seconds * float64(time.Second)), true
}

// Text returns how far the work is in words: "44 %, about 3 min left".
func (w *Work) Text(now time.Time) string {
	text := fmt.Sprintf("%.0f %%", math.Floor(100*w.Far()))
	if left, ok := w.Left(now); ok {
		text += ", " + About(left) + " left"
	}
	return text
}

// About returns a time in words, as exactly as an estimate is: about 40 s, about 3 min, about 2 h 10 min.
func About(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("about %d s", int(math.Ceil(d.Seconds())))
	case d < 2*time.Minute:
		return fmt.Sprintf("about %d s", int(math.Ceil(d.Seconds()/5))*5)
	case d < 2*time.Hour:
		return fmt.Sprintf("about %d min", int(math.Round(d.Minutes())))
	case d < 48*time.Hour:
		minutes := int(math.Round(d.Minutes()/10)) * 10
		return strings.TrimSuffix(fmt.Sprintf("about %d h %d min", minutes/60, minutes%60), " 0 min")
	}
	return fmt.Sprintf("about %d days", int(math.Round(d.Hours()/24)))
}
