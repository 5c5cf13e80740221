package ui

import (
	"fmt"
	"strings"
	"testing"
)

// all returns what somebody at a place is sent until there is nothing.
func all(f *feed, p *place) string {
	var got []string
	for {
		m, ok := f.next(p)
		if !ok {
			return strings.Join(got, " ")
		}
		got = append(got, m.kind+":"+string(m.data))
	}
}

// A client that begins to watch is sent the map, then all that is remembered in its order, and only then the newest alone. Events are all sent.
func TestNext(t *testing.T) {
	var f feed
	var first, second place
	f.addEvent([]byte("ready"))
	if got := all(&f, &first); got != "" {
		t.Errorf("before there is a map: %s", got)
	}
	f.setMap([]byte("m"))
	f.addSample([]byte("1"))
	f.addEvent([]byte("cut"))
	f.addSample([]byte("2"))
	f.addSample([]byte("3"))
	if got := all(&f, &first); got != "map:m event:ready sample:1 event:cut sample:2 sample:3" {
		t.Error(got)
	}
	f.addSample([]byte("4"))
	f.addEvent([]byte("healed"))
	f.addSample([]byte("5"))
	f.addSample([]byte("6"))
	if got := all(&f, &first); got != "event:healed sample:6" {
		t.Error(got)
	}
	if got := all(&f, &first); got != "" {
		t.Error(got)
	}
	f.setMap([]byte("n"))
	f.addSample([]byte("7"))
	f.end([]byte("over"))
	if got := all(&f, &first); got != "map:n sample:7 ended:over" {
		t.Error(got)
	}
	if got := all(&f, &second); got != "map:n event:ready event:cut event:healed sample:7 ended:over" {
		t.Errorf("samples of another map: %s", got)
	}
}

// Of who has never had a map, the end is known too.
func TestEndedAtOnce(t *testing.T) {
	var f feed
	f.end([]byte("over"))
	if got := all(&f, new(place)); got != "ended:over" {
		t.Error(got)
	}
}

// Messages are remembered up to a number, and samples up to a number of bytes. A client that is behind goes on with the oldest that is left.
func TestBounds(t *testing.T) {
	var f feed
	f.setMap(nil)
	var slow place
	f.addSample([]byte("0"))
	f.addEvent([]byte("0"))
	for range 3 {
		f.next(&slow)
	}
	for i := range mostEvents + 10 {
		f.addEvent(fmt.Append(nil, i))
	}
	for i := range mostSamples + 10 {
		f.addSample(fmt.Append(nil, i))
	}
	if len(f.events) != mostEvents || len(f.samples) != mostSamples {
		t.Errorf("%d events, %d samples", len(f.events), len(f.samples))
	}
	if m, _ := f.next(&slow); m.kind != "event" || string(m.data) != "10" {
		t.Errorf("%s %s", m.kind, m.data)
	}
	f = feed{}
	f.setMap(nil)
	large := make([]byte, mostBytes/4)
	for range 10 {
		f.addSample(large)
	}
	if len(f.samples) != 4 || f.bytes != mostBytes {
		t.Errorf("%d samples of %d bytes", len(f.samples), f.bytes)
	}
	f.addSample(make([]byte, 2*mostBytes))
	if len(f.samples) != 1 || f.bytes != 2*mostBytes {
		t.Errorf("a sample above the bound: %d samples of %d bytes", len(f.samples), f.bytes)
	}
}
