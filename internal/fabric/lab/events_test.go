package lab

import (
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ndklab/ndklab/internal/fabric/event"
)

// numbered is event n of a test.
func numbered(n int) event.Event {
	return event.Event{Text: strconv.Itoa(n), Time: time.Unix(int64(n), 0)}
}

// A watcher gets every event or is told how many it missed, whenever it reads, and
// never more than are kept.
func TestHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h history
		added, read := 0, uint64(0) // up to which number
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			for range rapid.SampledFrom([]int{0, 1, 2, 100, keptEvents - 1, keptEvents, keptEvents + 1, 3 * keptEvents}).Draw(t, "add") {
				added++
				h.add(numbered(added))
			}
			for range rapid.SampledFrom([]int{0, 1, 2, 100, 2 * keptEvents}).Draw(t, "read") {
				e, number, more := h.from(read + 1)
				if number == 0 {
					if int(read) != added || isClosed(more) {
						t.Fatalf("nothing behind event %d of %d", read, added)
					}
					break
				}
				if oldest := max(1, added-keptEvents+1); int(number) != max(int(read)+1, oldest) || e.Text != strconv.Itoa(int(number)) {
					t.Fatalf("event %d (%s) behind %d of %d", number, e.Text, read, added)
				}
				read = number
			}
			all, next := h.all(time.Unix(int64(added-5), 0))
			if int(next) != added+1 || len(all) != min(added, 6) || len(all) > 0 && all[0].Text != strconv.Itoa(max(1, added-5)) {
				t.Fatalf("%d kept of the last 6 of %d, next %d: %+v", len(all), added, next, all)
			}
		}
	})
}

// A slow reader loses events, and is told how many, in their place.
func TestSlowWatcher(t *testing.T) {
	var h history
	h.add(numbered(1))
	reads, goOn := make(chan string), make(chan error)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		h.send(done, 1, func(e event.Event) error {
			text := e.Text
			if e.Kind == event.EventsLost {
				text = "lost " + strconv.FormatUint(e.Lost, 10)
			}
			reads <- text
			return <-goOn
		})
	}()
	got := []string{<-reads}
	for n := 2; n <= keptEvents+100; n++ {
		h.add(numbered(n))
	}
	for range 3 {
		goOn <- nil
		got = append(got, <-reads)
	}
	if want := []string{"1", "lost 99", "101", "102"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	goOn <- errors.New("gone") // and nothing more is sent
	<-ended

	// A wait for an event ends with the channel.
	go func() {
		close(done)
	}()
	h.send(done, keptEvents+101, func(e event.Event) error {
		t.Errorf("there is an event %+v", e)
		return nil
	})
}

// Events are kept from the lab's beginning, and come from any number on.
func TestEvents(t *testing.T) {
	l := start(t, ring(uniqueName(t), 2))
	ctx := testContext(t)
	if err := l.Links.Down(ctx, "n0:eth0"); err != nil {
		t.Fatal(err)
	}
	between := time.Now()
	if err := l.Links.Up(ctx, "n0:eth0"); err != nil {
		t.Fatal(err)
	}
	kinds := func(events []event.Event) (kinds []string) {
		for _, e := range events {
			kinds = append(kinds, e.Kind)
		}
		return kinds
	}
	all, next, err := l.Events(ctx, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{event.LabReady, event.LinkChanged, event.LinkChanged}; !slices.Equal(kinds(all), want) || next != 4 || all[2].At <= 0 {
		t.Errorf("events %+v, next %d", all, next)
	}
	late, next, err := l.Events(ctx, between)
	if err != nil || len(late) != 1 || late[0].Text != "link n0:eth0 is up" || next != 4 {
		t.Errorf("since the link was down: %+v, %d, %v", late, next, err)
	}
	watcher, err := Open(ctx, l.Info().Lab)
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Close()
	seen := make(chan event.Event, 10)
	if err := watcher.WatchFrom(ctx, 2, func(e event.Event) { seen <- e }); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"link n0:eth0 is down", "link n0:eth0 is up"} {
		select {
		case e := <-seen:
			if e.Text != want {
				t.Errorf("got %+v, want %q", e, want)
			}
		case <-ctx.Done():
			t.Fatal("no event")
		}
	}
}
