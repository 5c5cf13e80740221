package simulate

import (
	"errors"
	"math"
	"sync/atomic"
	"time"

	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/topology"
)

// Windows run shards side by side. A window is no longer than the least delay of the links between shards, in which nothing can
// come from one to another (conservative lookahead), and nothing happens in it but in hosts and on links. All else happens
// between windows, one event after the other. So a run is the same with any number of shards.
//
// Hosts tell the lab that a flow has ended, or of an error of a queue pair, and that may act on other hosts at once. A window
// ends before the first may happen. If something is told in a window all the same, or a deadlock comes, nothing of the lab is of
// use any more (errUnforeseen).
type windows struct {
	lab     *lab
	clocks  *clock.Shards
	changes int           // of links and routes, when the lab was built
	longest time.Duration // longestWindow
	lasts   bool          // a window does
	told    atomic.Bool   // a host had something to tell in a window
	wait    int           // events until the next window is tried
	worth   int           // events for which a window is
	vain    int           // windows in a row that were not worth it; mostInARow at most
	refused int           // times in a row that none could begin; mostInARow at most
}

const (
	// A window of fewer events for each shard than worthwhile costs more than it saves. After such a window some events run one
	// after the other before the next is tried: twice as many each time, lest processors do nothing but wait for windows where
	// little happens. The same goes for where no window could begin.
	worthwhile    = 32
	waitAfterVain = 100
	waitForCalm   = 20
	mostInARow    = 6
	// mostWindow bounds a window where links between shards have long delays, for the sake of memory: each event is in a log.
	mostWindow = 100 * time.Microsecond
)

// longestWindow returns how long a window is at most, however long links between shards take. A flow that begins to end in a window
// must not be over in it: its end is told to the peer's adapter, and the answer to that of the flow. Where adapters take no time,
// some runs begin anew for that.
func longestWindow(t *topology.Topology) time.Duration {
	window := mostWindow
	for i := range t.Nodes {
		if n := &t.Nodes[i]; n.Kind == topology.Host {
			if least := leastTurnaround(n); least > 0 {
				window = min(window, 2*least)
			}
		}
	}
	return window
}

// errUnforeseen reports that a host had something to tell the lab in a window, or a deadlock came.
var errUnforeseen = errors.New("simulate: something has happened in a part of the lab that concerns others, which are ahead of it")

// setClocks gives the lab its clock, and returns those of its shards. There is one clock for all if there is one shard.
func (l *lab) setClocks(shards int) (clocks []*clock.Virtual) {
	if shards == 1 {
		l.clock = clock.NewVirtual()
		return []*clock.Virtual{l.clock}
	}
	w := &windows{lab: l, clocks: clock.NewShards(shards), longest: longestWindow(l.topo), worth: worthwhile * shards}
	for i := range shards {
		clocks = append(clocks, w.clocks.Shard(i))
	}
	l.clock, l.windows = w.clocks.Control(), w
	return clocks
}

// close ends the lab's goroutines. It is not used any more.
func (l *lab) close() {
	if l.windows != nil {
		l.windows.clocks.Close()
	}
}

// beginNoWindows has all events run one after the other from now on.
func (l *lab) beginNoWindows() {
	if l.windows != nil {
		l.windows.wait = math.MaxInt
	}
}

// step runs the next event, or those of a window. It returns how many those are, about; 0 if nothing is left. The error is
// errUnforeseen.
func (l *lab) step() (events int, err error) {
	w := l.windows
	ran := false
	switch {
	case w == nil:
		ran = l.clock.Step()
	case w.wait > 0:
		w.wait--
		ran = w.clocks.Step()
	default:
		if end, ok := w.next(); ok {
			w.refused = 0
			return w.run(end)
		}
		w.putOff(waitForCalm, &w.refused)
		ran = w.clocks.Step()
	}
	if !ran {
		return 0, nil
	}
	return 1, nil
}

// next returns the end of the window that may begin now; false if none may.
func (w *windows) next() (end time.Duration, ok bool) {
	begin, ok := w.clocks.Next()
	if !ok || begin == w.lab.clock.Now() { // what happens now may not be over
		return 0, false
	}
	end = begin + min(w.lab.network.plane.Lookahead(), w.longest)
	if own, ok := w.lab.clock.Next(); ok {
		end = min(end, own)
	}
	if end > begin {
		end = w.calmUntil(begin, end)
	}
	return end, end > begin
}

// putOff has some events run before a window is tried again, twice as many each time in a row.
func (w *windows) putOff(events int, inARow *int) {
	w.wait = events << *inARow
	*inARow = min(*inARow+1, mostInARow)
}

// calmUntil returns until when from begin on, before which nothing happens, no host tells the lab anything as far as that can be
// foreseen; end if that is before.
func (w *windows) calmUntil(begin, end time.Duration) time.Duration {
	n := w.lab.network
	if n.changes != w.changes { // shardingOf knows of the first ones alone that no deadlock comes of them
		return begin
	}
	for _, at := range n.nodes {
		switch {
		case len(at.addresses) == 0:
		case at.life == nil || at.paused:
			return begin
		case at.life.host.Ending():
			end = min(end, at.life.port.quietUntil(begin))
		}
	}
	return end
}

// run runs a window.
func (w *windows) run(end time.Duration) (events int, err error) {
	plane := w.lab.network.plane
	w.lasts = true
	plane.BeginWindow()
	events = w.clocks.Window(end)
	deadlocked := plane.EndWindow(w.clocks.Final)
	w.lasts = false
	if deadlocked || w.told.Load() {
		return events, errUnforeseen
	}
	if events >= w.worth {
		w.vain = 0
	} else {
		w.putOff(waitAfterVain, &w.vain)
	}
	return max(1, events), nil
}

// mayTell reports whether a host may tell the lab something now.
func (l *lab) mayTell() bool {
	if l.windows == nil || !l.windows.lasts {
		return true
	}
	l.windows.told.Store(true)
	return false
}
