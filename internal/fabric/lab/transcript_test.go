package lab

import (
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A lockedLog is a log that a test may read while it is written to.
type lockedLog struct {
	mu   sync.Mutex
	text strings.Builder
	line chan struct{} // gets a token for each write
}

func (l *lockedLog) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.line <- struct{}{}
	return l.text.Write(data)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Output from before the end is there at the end, and what a child writes afterwards
// still comes.
func TestTranscript(t *testing.T) {
	log := &lockedLog{line: make(chan struct{}, 100)}
	tr, w, err := newTranscript(log, "n: ", lastLines)
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", longLine+1)
	write := func(f *os.File, text string) {
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	write(w, "one\r\n\n  \ntwo\n"+long+"\n\npart")
	want := []string{"one", "two", long[:longLine], "x", "part"}
	if diff := cmp.Diff(want, tr.ended()); diff != "" {
		t.Errorf("last lines (-want +got):\n%s", diff)
	}
	if want := "n: one\nn: two\nn: " + long[:longLine] + "\nn: x\nn: part\n"; log.String() != want {
		t.Errorf("log %q, want %q", log, want)
	}
	for range 5 {
		<-log.line
	}
	write(w, "late\n")
	<-log.line
	if !strings.HasSuffix(log.String(), "n: part\nn: late\n") {
		t.Errorf("log %q", log)
	}
	write(w, "without an end")
	w.Close()
	<-log.line
	if !strings.HasSuffix(log.String(), "n: late\nn: without an end\n") {
		t.Errorf("log %q", log)
	}
}

// Only the last lines are kept, and all are waited for that the command wrote.
func TestTranscriptLastLines(t *testing.T) {
	for range 100 {
		tr, w, err := newTranscript(nil, "", lastLines)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.WriteString(strings.Repeat("early\n", 1000) + "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n"); err != nil {
			t.Fatal(err)
		}
		w.Close()
		if got := strings.Join(tr.ended(), " "); got != "1 2 3 4 5 6 7 8 9 10" {
			t.Fatalf("last lines %q", got)
		}
	}
}

// A replying writes another line to a file for each that is written to it.
type replying struct{ file *os.File }

func (r replying) Write(data []byte) (int, error) {
	_, err := r.file.WriteString("y\n")
	return len(data), err
}

// A child that goes on writing does not keep anybody from learning of the command's end.
func TestTranscriptOfWriter(t *testing.T) {
	log := new(replying)
	tr, w, err := newTranscript(log, "", lastLines)
	if err != nil {
		t.Fatal(err)
	}
	log.file = w
	if _, err := w.WriteString("y\n"); err != nil {
		t.Fatal(err)
	}
	ended := make(chan []string)
	go func() { ended <- tr.ended() }()
	select {
	case last := <-ended:
		if len(last) == 0 || last[0] != "y" {
			t.Errorf("last lines %q", last)
		}
	case <-time.After(testTime):
		t.Fatal("nobody learns of the end")
	}
	w.Close()
}
