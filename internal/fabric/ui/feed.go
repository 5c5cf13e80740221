package ui

import (
	"cmp"
	"slices"
)

// This file has what is remembered of a lab for those who watch it, and what each of them is to be sent next. It is pure.

// The bounds on what is remembered.
const (
	mostSamples = 600      // 10 minutes, at one a second
	mostBytes   = 32 << 20 // of samples
	mostEvents  = 4096     // as many as a lab keeps
)

// A message is one of a stream.
type message struct {
	kind string // map, sample, event or ended
	data []byte // JSON
}

// A numbered message has its place among all.
type numbered struct {
	number uint64 // from 1, ascending
	message
}

// A feed has what is remembered. Its owner guards it.
type feed struct {
	whole   bool     // all is remembered: it is of a run that is over
	last    uint64   // number of the last message of any kind
	mapping numbered // number 0: there is none yet
	samples []numbered
	bytes   int // of samples
	events  []numbered
	ended   numbered // number 0: it goes on
}

// A place says how far somebody who watches has read a feed. The zero place is before all.
type place struct {
	mapping, sample, event, ended uint64 // numbers of the last that were sent
	current                       bool   // all that was remembered has been sent
}

func (f *feed) number(kind string, data []byte) numbered {
	f.last++
	return numbered{f.last, message{kind, data}}
}

// setMap begins anew with a map: samples of another are not kept.
func (f *feed) setMap(data []byte) {
	f.mapping = f.number("map", data)
	f.samples, f.bytes = nil, 0
}

func (f *feed) addSample(data []byte) {
	f.samples = append(f.samples, f.number("sample", data))
	f.bytes += len(data)
	for !f.whole && (len(f.samples) > mostSamples || f.bytes > mostBytes && len(f.samples) > 1) {
		f.bytes -= len(f.samples[0].data)
		f.samples[0].data = nil
		f.samples = f.samples[1:]
	}
}

func (f *feed) addEvent(data []byte) {
	f.events = append(f.events, f.number("event", data))
	if !f.whole && len(f.events) > mostEvents {
		f.events[0].data = nil
		f.events = f.events[1:]
	}
}

func (f *feed) end(data []byte) { f.ended = f.number("ended", data) }

// next returns what somebody at a place is to be sent, and moves the place past it: first the map, then what is remembered in its order.
// After that he gets only the newest of several samples that have come since. ok is false when there is nothing.
func (f *feed) next(p *place) (m message, ok bool) {
	if f.mapping.number == 0 && f.ended.number == 0 {
		return message{}, false
	}
	if f.mapping.number > p.mapping {
		p.mapping = f.mapping.number
		return f.mapping.message, true
	}
	sample, event := after(f.samples, p.sample), after(f.events, p.event)
	if p.current && len(sample) > 1 {
		sample = sample[len(sample)-1:]
	}
	switch {
	case len(event) > 0 && (len(sample) == 0 || event[0].number < sample[0].number):
		p.event = event[0].number
		return event[0].message, true
	case len(sample) > 0:
		p.sample = sample[0].number
		return sample[0].message, true
	}
	p.current = true
	if f.ended.number > p.ended {
		p.ended = f.ended.number
		return f.ended.message, true
	}
	return message{}, false
}

// after returns the messages after the one of a number. They are in ascending order.
func after(all []numbered, number uint64) []numbered {
	i, _ := slices.BinarySearchFunc(all, number, func(n numbered, number uint64) int { return cmp.Compare(n.number, number+1) })
	return all[i:]
}
