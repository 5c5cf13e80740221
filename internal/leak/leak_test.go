package leak

import (
	"fmt"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// A log keeps what a test is told.
type log struct {
	testing.TB
	lines []string
}

func (l *log) Helper()           {}
func (l *log) Error(args ...any) { l.lines = append(l.lines, fmt.Sprint(args...)) }

func wait(end <-chan struct{}) { <-end }

func TestCheck(t *testing.T) {
	ends := make(chan struct{}) // of a goroutine that is there before
	defer close(ends)
	go wait(ends)
	for _, stays := range []bool{false, true} {
		l, end, limit := new(log), make(chan struct{}), patience
		if stays {
			limit = 0
		}
		ended := check(l, limit)
		go wait(end)
		if !stays {
			close(end)
		}
		ended()
		if stays {
			close(end)
		}
		if told := strings.Join(l.lines, "\n"); strings.Contains(told, "leak.wait") != stays {
			t.Errorf("of one that stays %v it was told %q", stays, told)
		}
	}
}

// TestPatience: goleak alone would not wait for as long as a goroutine takes here.
func TestPatience(t *testing.T) {
	before := goleak.IgnoreCurrent()
	end := make(chan struct{})
	go wait(end)
	first := goleak.Find(before)
	if first == nil {
		t.Fatal("goleak does not see the goroutine")
	}
	looked := make(chan error)
	go func() { looked <- find(patience, before) }()
	for range 2 {
		_ = goleak.Find(before) // takes as long as it looks
	}
	close(end)
	if err := <-looked; err != nil {
		t.Error(err)
	}
}
