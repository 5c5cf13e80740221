package topology

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// This file is changes as the command line has them, KEY=VALUE with the keys and
// values of a file, and as people read them.

// ChangeKeys are the keys that ParseChange takes.
func ChangeKeys() []string { return impairmentTable().names() }

// ParseChange reads settings such as loss=1% and
// jitter={spread: 50us, distribution: normal}. Files of samples are read with
// read, which may be nil: then none are. The error has a line for everything that
// is wrong. ParseChange does not check that the change suits a link:
// Impairment.Check does, on the result of Apply.
func ParseChange(read ReadFile, settings []string) (Change, error) {
	if len(settings) == 0 {
		return Change{}, errors.New("nothing to set, expected KEY=VALUE such as loss=1% or rate=none")
	}
	r := &reader{Options: Options{Read: read}}
	t := impairmentTable()
	m := &mapping[impairment]{givens: givens{reader: r, noun: t.noun}, table: t}
	var bad []error
	for _, setting := range settings {
		r.errors = nil
		key, value, ok := strings.Cut(setting, "=")
		k := t.find(key)
		switch {
		case !ok:
			bad = append(bad, fmt.Errorf("found %s, expected KEY=VALUE such as loss=1%%", quote(setting)))
			continue
		case k.read == nil:
			if reason := unsettable(key); reason != "" {
				bad = append(bad, fmt.Errorf("%s: %s", key, reason))
			} else {
				bad = append(bad, fmt.Errorf("unknown key %s, %s", quote(key), r.expectation(key, t.names())))
			}
			continue
		case m.has(key):
			bad = append(bad, fmt.Errorf("%s a second time, expected it once", key))
			continue
		}
		if n, ok := r.value([]byte(value)); ok {
			m.set(&k, n)
		}
		for _, e := range r.errors {
			if e.File == "" {
				bad = append(bad, fmt.Errorf("%s: %s", key, e.Message))
			} else {
				bad = append(bad, e)
			}
		}
	}
	for _, s := range m.is.senders {
		if s.at != nil {
			bad = append(bad, errors.New("faults: from stands in a fault, expected none: the direction is chosen for all settings"))
		}
	}
	if bad != nil {
		return Change{}, errors.Join(bad...)
	}
	return m.is.change, nil
}

// unsettable says why a key that links have in a topology file is no setting. It returns ""
// if they have no such key.
func unsettable(name string) string {
	reasons := map[string]string{
		"reverse": "no setting, expected --from NODE beside settings for what that node sends",
		"down":    `no setting, expected "ndklab link down" or "ndklab link up"`,
		"capture": `no setting, expected "ndklab capture"`,
	}
	switch {
	case reasons[name] != "":
		return reasons[name]
	case slices.Contains(linkTable().names(), name):
		return "fixed while the lab is up, expected a change of the topology file"
	}
	return ""
}

// Settings returns settings that ParseChange reads as the same change.
func (c Change) Settings() []string {
	var settings []string
	for _, p := range c.parts() {
		settings = append(settings, p.key+"="+p.value)
	}
	return settings
}

// Settings returns the settings that make the impairment of none at all.
func (i Impairment) Settings() []string { return i.change().Settings() }

// String is the change in words: "delay 1ms, loss 1% in bursts of 5".
func (c Change) String() string {
	var texts []string
	for _, p := range c.parts() {
		texts = append(texts, p.key+" "+p.text)
	}
	if texts == nil {
		return "no change"
	}
	return strings.Join(texts, ", ")
}

// String is the impairment in words.
func (i Impairment) String() string {
	if i.None() {
		return "no impairment"
	}
	return i.change().String()
}

// change is the change of none into i.
func (i Impairment) change() Change { return Difference(Impairment{}, i) }

// Difference is the change that makes the second of two impairments of the first.
func Difference(was, is Impairment) Change {
	var c Change
	for _, k := range impairmentKeys() {
		if !k.equal(&was, &is) {
			k.take(&c, &is)
		}
	}
	return c
}

func (j Jitter) equal(k Jitter) bool {
	none := func(j Jitter) bool { return j.Spread == 0 && len(j.Samples) == 0 }
	return none(j) && none(k) || j.Spread == k.Spread && j.Distribution == k.Distribution && slices.Equal(j.Samples, k.Samples)
}

func (l Loss) equal(m Loss) bool {
	none := func(l Loss) bool { return l.Rate == 0 && l.Every == 0 && len(l.Packets) == 0 }
	return none(l) && none(m) || l.Rate == m.Rate && l.Burst == m.Burst && l.Every == m.Every && slices.Equal(l.Packets, m.Packets)
}
