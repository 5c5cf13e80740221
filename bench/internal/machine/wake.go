package machine

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// A Pace describes what the machine itself does, with nothing of ndklab running: nothing
// that runs on it can do better, and a virtual machine's figures vary by the hour.
type Pace struct {
	// Away is the share of the time in which a thread that has a processor to itself
	// did not run for over awayLimit at a time, since whoever runs this machine had
	// other business. Of packets that are evenly spread, as many are that late.
	Away float64 `json:"away"`
	// Wake is the time to wake a thread on another processor, which is idle: the median,
	// us. Between blocking ends, a round trip through a link engine has up to
	// four of these, one between polling ends two, to busy processors, and one without
	// an engine two.
	Wake float64 `json:"wake_us"`
}

const (
	awayLimit = 150 * time.Microsecond // as late as packets may be at the 99th percentile
	awayTime  = time.Second
	wakeCount = 2000 // round trips between two threads
)

// Measure takes a good second of two processors.
func Measure() (Pace, error) {
	wake, err := wakeTime()
	if err != nil {
		return Pace{}, fmt.Errorf("wake-ups: %w", err)
	}
	return Pace{Away: awayShare(), Wake: float64(wake) / float64(time.Microsecond)}, nil
}

// String returns a line about it.
func (p Pace) String() string {
	return fmt.Sprintf("the machine itself: away for over 150us at a time: %.2f %% of the time; to wake a processor: %.1f us", 100*p.Away, p.Wake)
}

// awayShare watches the clock.
func awayShare() float64 {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var away time.Duration
	begin := time.Now()
	for before := begin; ; {
		now := time.Now()
		if gap := now.Sub(before); gap > awayLimit {
			away += gap
		}
		if before = now; now.Sub(begin) > awayTime {
			return float64(away) / float64(now.Sub(begin))
		}
	}
}

// wakeTime has two threads wake each other, each on a processor of its own if there
// are two.
func wakeTime() (time.Duration, error) {
	there, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return 0, err
	}
	defer unix.Close(there)
	back, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return 0, err
	}
	defer unix.Close(back)
	pass := func(read bool, fd int) error {
		token := [8]byte{1} // of a counter that never has another value than 0 and 1
		if read {
			_, err := unix.Read(fd, token[:])
			return err
		}
		_, err := unix.Write(fd, token[:])
		return err
	}
	echoed := make(chan error, 1)
	go func() {
		// The thread is not unlocked, so that it ends with its affinity.
		runtime.LockOSThread()
		err := pin(1)
		for range wakeCount {
			if passErr := pass(true, there); err == nil {
				err = passErr
			}
			if passErr := pass(false, back); err == nil {
				err = passErr
			}
		}
		echoed <- err
	}()
	took := make([]time.Duration, 0, wakeCount)
	timed := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := pin(0)
		for range wakeCount {
			sent := time.Now()
			if passErr := pass(false, there); err == nil {
				err = passErr
			}
			if passErr := pass(true, back); err == nil {
				err = passErr
			}
			took = append(took, time.Since(sent)/2)
		}
		timed <- err
	}()
	if err := <-timed; err != nil {
		return 0, err
	}
	if err := <-echoed; err != nil {
		return 0, err
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

// pin has the calling thread run on one of the processors that it may run on.
func pin(index int) error {
	var allowed, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return err
	}
	index %= allowed.Count()
	for cpu := 0; ; cpu++ {
		if !allowed.IsSet(cpu) {
			continue
		}
		if index == 0 {
			one.Set(cpu)
			return unix.SchedSetaffinity(0, &one)
		}
		index--
	}
}
