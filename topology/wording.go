package topology

import (
	"fmt"
	"strconv"
	"strings"
)

// This file writes what a change says, as a file has it and in words.

// A part is one key of a change.
type part struct {
	key   string
	value string // as a file has it, in YAML's flow style
	text  string // in words
}

// parts returns what a change names, in the order of impairmentKeys.
func (c Change) parts() []part {
	var parts []part
	for _, k := range impairmentKeys() {
		if value, text, changed := k.write(&c); changed {
			parts = append(parts, part{k.name, value, text})
		}
	}
	return parts
}

// unless is text, or the word for nothing.
func unless(nothing bool, text string) string {
	if nothing {
		return none
	}
	return text
}

// flow is a map in YAML's flow style, of keys each followed by its value, of which
// those that are empty are left out.
func flow(pairs ...string) string {
	var given []string
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			given = append(given, pairs[i]+": "+pairs[i+1])
		}
	}
	return "{" + strings.Join(given, ", ") + "}"
}

// formatList is a list in YAML's flow style, empty if the list is.
func formatList[T any](list []T, format func(T) string) string {
	if len(list) == 0 {
		return ""
	}
	words := textsOf(list, format)
	if len(words) == 1 {
		return words[0]
	}
	return "[" + strings.Join(words, ", ") + "]"
}

// formatCount is a number, empty for 0.
func formatCount[T int | uint64](n T) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

func (j Jitter) format() (value, text string) {
	spread := FormatDuration(j.Spread)
	switch {
	case len(j.Samples) > 0:
		return flow("samples", "["+strings.Join(textsOf(j.Samples, formatSigned), ", ")+"]"), fmt.Sprintf("of %d samples", len(j.Samples))
	case j.Distribution == "" || j.Distribution == Uniform:
		return spread, spread
	}
	return flow("spread", spread, "distribution", string(j.Distribution)), spread + " " + string(j.Distribution)
}

func (l Loss) format() (value, text string) {
	rate := FormatPercent(l.Rate)
	if l.Burst == 0 && l.Every == 0 && len(l.Packets) == 0 {
		return rate, rate
	}
	burst := ""
	var texts []string
	switch {
	case l.Burst != 0:
		burst = formatNumber(l.Burst)
		texts = append(texts, rate+" in bursts of "+burst)
	case l.Rate != 0:
		texts = append(texts, rate)
	default:
		rate = ""
	}
	if l.Every != 0 {
		texts = append(texts, fmt.Sprintf("every %d packets", l.Every))
	}
	if len(l.Packets) > 0 {
		texts = append(texts, "packet "+formatPlaces(l.Packets))
	}
	value = flow("rate", rate, "burst", burst, "every", formatCount(l.Every), "packets", formatList(l.Packets, formatCount))
	return value, strings.Join(texts, " and ")
}

// formatPlaces is the first few of the places.
func formatPlaces(places []uint64) string {
	shown := places[:min(len(places), listed)]
	text := strings.Trim(fmt.Sprint(shown), "[]")
	if len(shown) < len(places) {
		text += fmt.Sprintf(" ... (%d in all)", len(places))
	}
	return text
}

func (o Reorder) format() (value, text string) {
	p := FormatPercent(o.Probability)
	if o.Depth == 0 {
		return p, p
	}
	return flow("probability", p, "depth", formatCount(o.Depth)), fmt.Sprintf("%s by up to %d", p, o.Depth)
}

func (c Corrupt) format() (value, text string) {
	p := FormatPercent(c.Probability)
	text = p
	where := ""
	if c.Bits != 0 {
		text += fmt.Sprintf(" in %d bits", c.Bits)
	}
	if c.Anywhere {
		where = "anywhere"
		text += " " + where
	}
	if text == p {
		return p, p
	}
	return flow("probability", p, "where", where, "bits", formatCount(c.Bits)), text
}

func (q Queue) format() (value, text string) {
	bytes, packets := FormatSize(q.Bytes), formatPackets(q.Packets)
	switch {
	case q == Queue{}:
		return none, none
	case q.Packets == 0:
		return bytes, bytes
	case q.Bytes == 0:
		return packets, packets
	}
	return flow("bytes", bytes, "packets", formatCount(q.Packets)), bytes + " or " + packets
}

func (e ECN) format() (value, text string) {
	if e == (ECN{}) {
		return none, none
	}
	least, most := FormatSize(e.Min), FormatSize(e.Max)
	probability, text := "", "from "+least+" to "+most
	if e.Probability != 0 {
		probability = FormatPercent(e.Probability)
		text += " with up to " + probability
	}
	return flow("min", least, "max", most, "probability", probability), text
}

func (f Flap) format() (value, text string) {
	if f == (Flap{}) {
		return none, none
	}
	down, period := FormatDuration(f.Down), FormatDuration(f.Period)
	return flow("period", period, "down", down), down + " of every " + period
}

// formatFaults has the faults in words in the syntax of values, too: a match says
// most that way.
func formatFaults(faults []Fault) (value, text string) {
	var values, texts []string
	for _, f := range faults {
		match, delay, by := f.Match.format(), "", ""
		if f.Delay != 0 {
			delay = FormatDuration(f.Delay)
			by = " by " + delay
		}
		values = append(values, flow("match", match, "action", string(f.Action), "delay", delay))
		texts = append(texts, string(f.Action)+" "+match+by)
	}
	return "[" + strings.Join(values, ", ") + "]", unless(values == nil, strings.Join(texts, " or "))
}

func (m Match) format() string {
	qp, psn, p := "", "", ""
	if m.QP != nil {
		qp = fmt.Sprintf("0x%x", *m.QP)
	}
	if m.PSN != nil {
		psn = strconv.FormatUint(uint64(m.PSN.First), 10)
		if m.PSN.Last != m.PSN.First {
			psn += fmt.Sprintf("-%d", m.PSN.Last)
		}
	}
	if m.Probability != 0 {
		p = FormatPercent(m.Probability)
	}
	word := func(s string) string { return s }
	return flow("opcode", formatList(formatOpcodes(m.Opcodes), word), "syndrome", formatList(m.Syndromes, word),
		"cm", formatList(m.CM, formatMessage), "qp", qp, "psn", psn, "nth", formatList(m.Packets, formatCount),
		"every", formatCount(m.Every), "count", formatCount(m.Count), "probability", p)
}
