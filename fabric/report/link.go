package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// A Link is a link's state and what it did.
type Link struct {
	Endpoints  [2]string    `json:"endpoints"`
	Engine     string       `json:"engine"` // plain, linkem or netem; simulated
	State      string       `json:"state"`  // up or down
	Directions [2]Direction `json:"directions"`
}

// A Direction is what happened to the packets that one endpoint sent.
type Direction struct {
	From     string  `json:"from"`    // endpoint
	Packets  uint64  `json:"packets"` // wire packets that entered the link
	Bytes    uint64  `json:"bytes"`   // of those, from the Ethernet header on
	Dropped  uint64  `json:"dropped"` // of those, by asked-for loss
	Lost     uint64  `json:"lost"`    // of those, for any other reason
	Asked    Quality `json:"asked"`   // the mean over the packets that met settings
	Achieved Quality `json:"achieved"`
	// Set holds what the present settings ask for; null if they are not known.
	Set *Quality `json:"set,omitempty"`

	LostBy     LostBy    `json:"lost_by"`            // Lost, by reason
	Duplicated uint64    `json:"duplicated"`         // copies made
	Reordered  uint64    `json:"reordered"`          // packets that overtook others
	Corrupted  uint64    `json:"corrupted"`          // packets
	Marked     uint64    `json:"marked"`             // packets, with Congestion Experienced
	Faulted    uint64    `json:"faulted"`            // packets that met a fault
	QueuePeak  *uint64   `json:"queue_peak"`         // bytes that waited at once for the rate; null if it is not measured
	Lateness   *Lateness `json:"lateness_us"`        // null if it is not measured
	Delays     []Delays  `json:"delays,omitempty"`   // the histogram of achieved delay, in ascending order; null if it is not measured
	Replayed   *Replayed `json:"replayed,omitempty"` // null unless a log is replayed
	Overruns   []Overrun `json:"overrun,omitempty"`  // where the machine did not keep up
	Settings   []string  `json:"settings,omitempty"` // the present ones, as "ndklab link set" takes them
}

// LostBy is why packets were lost other than by asked-for loss.
type LostBy struct {
	Queue   uint64 `json:"queue"`   // no room before the direction's rate
	Down    uint64 `json:"down"`    // the link was down
	Cut     uint64 `json:"cut"`     // the direction was cut, by cut or flap
	Fault   uint64 `json:"fault"`   // a fault that drops
	Overrun uint64 `json:"overrun"` // the link engine could not keep up, or had no memory left
	Kernel  uint64 `json:"kernel"`  // by the kernel while the link was plain: it could not keep up, or an end was down
}

// Delays counts the packets that were delayed by FromUS microseconds and more, but less
// than the next bar's. The first bar has those below it, too, and the last those above.
type Delays struct {
	FromUS  float64 `json:"from_us"`
	Packets uint64  `json:"packets"`
}

// Replayed says how a direction met a log of decisions.
type Replayed struct {
	Packets    uint64 `json:"packets"`    // that met what was recorded for their place
	Diverged   uint64 `json:"diverged"`   // of those, the ones that are not the packet that was recorded
	Unrecorded uint64 `json:"unrecorded"` // packets whose place is not in the log
}

// Lateness says how much later than asked packets left the link, in microseconds.
type Lateness struct {
	Min     float64 `json:"min"`
	P10     float64 `json:"p10"`
	P50     float64 `json:"p50"`
	P99     float64 `json:"p99"`
	Packets uint64  `json:"packets"`        // that left
	Late    []Late  `json:"late,omitempty"` // those that left later than the link tolerates
}

// Late counts the packets that left later than a limit.
type Late struct {
	LimitUS   float64 `json:"limit_us"`
	Packets   uint64  `json:"packets"`
	Tolerated float64 `json:"tolerated"` // share of the packets that left
}

// Limit is the limit for people.
func (l *Late) Limit() string { return given(Duration(l.LimitUS)) }

// An Overrun is a figure that left a link's tolerance because the machine could
// not keep up.
type Overrun struct {
	Figure    string `json:"figure"`    // "median delay"
	Tolerated string `json:"tolerated"` // "up to 1ms late"
	Got       string `json:"got"`       // "2.31 ms late"
	Reason    string `json:"reason"`
	Remedy    string `json:"remedy"`
	Allowed   bool   `json:"allowed"` // by the file: the run has not failed
}

// Quality says how a direction treats packets; null is not asked for, or not
// measured. Settings that changed during the run are averaged over the packets
// that met them.
type Quality struct {
	DelayUS   *float64 `json:"delay_us"`  // one way; achieved: median
	JitterUS  *float64 `json:"jitter_us"` // achieved: the spread whose distribution has the range between the 1st and 99th percentile of delay; without jitter half of that range
	Loss      *float64 `json:"loss"`      // fraction of packets
	RateGbps  *float64 `json:"rate_gbps"` // achieved: over the busiest 100 ms
	Burst     *float64 `json:"burst"`     // packets lost in a row, mean
	Duplicate *float64 `json:"duplicate"` // fraction of packets, as are those that follow
	Reorder   *float64 `json:"reorder"`
	Corrupt   *float64 `json:"corrupt"`
	Marked    *float64 `json:"marked"` // achieved alone
}

// WriteLinks writes links for people: what they are set to, and what they did.
func WriteLinks(w io.Writer, links []Link) error {
	p := newPage(w)
	p.settings(links)
	p.links(links)
	return p.flush()
}

// WriteSettings writes for people what links are set to.
func WriteSettings(w io.Writer, links []Link) error {
	p := newPage(w)
	p.settings(links)
	return p.flush()
}

func (p *page) settings(links []Link) {
	t := table{columns: []column{{title: "link"}, {title: "engine"}, {title: "state"}, {title: "settings", wraps: true}}}
	for _, l := range links {
		for end, d := range l.Directions {
			var settings []string
			for _, s := range d.Settings {
				settings = append(settings, whole(s))
			}
			if settings == nil {
				settings = []string{"-"}
			}
			t.add(l.direction(end), l.Engine, l.State, strings.Join(settings, " "))
		}
	}
	p.table(&t)
}

// direction is the name of a direction for people.
func (l *Link) direction(from int) string { return l.Endpoints[from] + " -> " + l.Endpoints[1-from] }

func (p *page) links(links []Link) {
	if len(links) == 0 {
		return
	}
	t := table{columns: []column{
		{title: "link", wraps: true}, {title: "engine"}, {title: "packets\nbytes", right: true},
		{title: "dropped\nlost", right: true}, {title: ""},
		{title: "delay", right: true}, {title: "jitter", right: true}, {title: "loss", right: true}, {title: "rate", right: true},
	}}
	for _, l := range links {
		engine := l.Engine
		if l.State != "up" {
			engine += "\n" + l.State
		}
		for end, d := range l.Directions {
			row := []string{l.direction(end), engine, count(d.Packets) + "\n" + Size(d.Bytes), count(d.Dropped) + "\n" + count(d.Lost)}
			t.add(append(row, d.figures()...)...)
		}
	}
	p.table(&t)
	p.linkStories(links)
	p.lateness(links)
}

// lateness says how late the packets of the direction left whose 10th percentile was
// latest: what a machine that is busy does not spoil.
func (p *page) lateness(links []Link) {
	var name string
	var worst *Lateness
	for _, l := range links {
		for end := range l.Directions {
			if d := l.Directions[end].Lateness; d != nil && d.Late != nil && (worst == nil || d.P10 > worst.P10) {
				name, worst = l.direction(end), d
			}
		}
	}
	if worst == nil {
		return
	}
	text := fmt.Sprintf("left %s late at the 10th percentile, %s at the median, %s at the 99th; of %s packets", Duration(worst.P10), Duration(worst.P50), Duration(worst.P99), count(worst.Packets))
	for i, l := range worst.Late {
		if i > 0 {
			text += ","
		}
		text += fmt.Sprintf(" %s were more than %s late (tolerated %s)", Percent(float64(l.Packets)/float64(worst.Packets)), l.Limit(), given(Percent(l.Tolerated)))
	}
	p.line("")
	for _, line := range p.wrapped("lateness, most at "+name+": ", text) {
		p.line(line)
	}
}

// figures lists what was asked and what was measured, in lines with their names. The
// present settings have a line of their own if the packets were asked for others, in the
// mean.
func (d *Direction) figures() []string {
	asked, achieved := d.Asked.cells(given), d.Achieved.cells(nil)
	if !d.Changed() {
		return beside([]string{"asked", "achieved"}, asked, achieved)
	}
	cells := []string{"set now\nmean asked\nachieved"}
	for i, now := range d.Set.cells(given) {
		cells = append(cells, now+"\n"+asked[i]+"\n"+achieved[i])
	}
	return cells
}

// Changed reports whether the present settings are others than those of the packets that
// the figures are about.
func (d *Direction) Changed() bool {
	return d.Set != nil && !slices.Equal(d.Set.cells(given), d.Asked.cells(given))
}

// linkStories says what there is to say of links besides their tables.
func (p *page) linkStories(links []Link) {
	first := true
	tell := func(lead, text string, in func(string) string) {
		if first {
			p.line("")
			first = false
		}
		for _, line := range p.wrapped(lead+": ", text) {
			p.line(in(line))
		}
	}
	for _, l := range links {
		for end := range l.Directions {
			if story := l.Directions[end].Story(); story != "" {
				tell(l.direction(end), story, func(line string) string { return line })
			}
		}
	}
	for _, l := range links {
		if l.Engine == "netem" {
			tell(l.Endpoints[0]+" - "+l.Endpoints[1], "what netem achieves is not measured, nor is an overrun noticed: see `ndklab link verify`",
				func(line string) string { return line })
		}
	}
	for _, l := range links {
		for end := range l.Directions {
			for _, o := range l.Directions[end].Overruns {
				tell("OVERRUN "+l.direction(end), o.String(), p.paint.red)
			}
		}
	}
}

// What is less than this is not worth a word: a queue of a few packets before a rate,
// and what a machine that is not saturated may be late (docs/topology.md, Tolerance).
const usualQueue = 16 << 10 // bytes

var usualLateness = Lateness{P50: 30, P99: 150}

// Story says what there is to say of a direction besides its line in the table.
func (d *Direction) Story() string {
	var parts []string
	for _, c := range []struct {
		n     uint64
		words string
	}{
		{d.LostBy.Queue, "lost to a full queue before the rate"},
		{d.LostBy.Down, "lost while it was down"},
		{d.LostBy.Cut, "lost while it was cut"},
		{d.LostBy.Fault, "dropped by faults"},
		{d.LostBy.Overrun, "lost because the link engine did not keep up"},
		{d.LostBy.Kernel, "lost by the kernel, which did not keep up or had an end down"},
		{d.Faulted, "met a fault"},
	} {
		if c.n > 0 {
			parts = append(parts, count(c.n)+" "+c.words)
		}
	}
	a, g, set := &d.Asked, &d.Achieved, d.Set
	if set == nil {
		set = a
	}
	overtook := "overtook others"
	if a.Reorder != nil && a.JitterUS != nil { // which does not keep the order then
		overtook += " by reorder or jitter"
	}
	for _, c := range []struct {
		n          uint64
		words      string
		set, asked *float64
		got        *float64
		format     func(float64) string
	}{
		{d.Duplicated, "duplicated", set.Duplicate, a.Duplicate, g.Duplicate, Percent},
		{d.Reordered, overtook, set.Reorder, a.Reorder, g.Reorder, Percent},
		{d.Corrupted, "corrupted", set.Corrupt, a.Corrupt, g.Corrupt, Percent},
		{d.Marked, "marked", nil, nil, g.Marked, Percent},
	} {
		if c.n > 0 || c.asked != nil || c.set != nil {
			parts = append(parts, count(c.n)+" "+c.words+against(c.set, c.asked, c.got, c.format))
		}
	}
	if d.Marked == 0 && slices.ContainsFunc(d.Settings, func(s string) bool { return strings.HasPrefix(s, "ecn=") }) {
		parts = append(parts, "nothing marked by ecn, since RDMA packets are not ECN-capable yet")
	}
	if a.Burst != nil {
		parts = append(parts, "losses in a row"+against(set.Burst, a.Burst, g.Burst, packets))
	}
	if r := d.Replayed; r != nil {
		parts = append(parts, fmt.Sprintf("%d met what was recorded, of which %d diverged: other packets than then; %d were not recorded", r.Packets, r.Diverged, r.Unrecorded))
	}
	if d.QueuePeak != nil && *d.QueuePeak >= usualQueue {
		parts = append(parts, "at most "+Size(*d.QueuePeak)+" in the queue")
	}
	if l := d.Lateness; l != nil && (l.P50 > usualLateness.P50 || l.P99 > usualLateness.P99) {
		parts = append(parts, fmt.Sprintf("left %s late at the median, %s at the 99th percentile", Duration(l.P50), Duration(l.P99)))
	}
	return strings.Join(parts, ", ")
}

func packets(n float64) string { return significant(n) + " packets" }

// against writes what was asked and measured, in parentheses, and what is set now if that
// differs.
func against(set, asked, got *float64, format func(float64) string) string {
	text := func(v *float64) string {
		if v == nil {
			return "none"
		}
		return given(format(*v))
	}
	var parts []string
	switch {
	case text(set) != text(asked):
		parts = append(parts, "set now "+text(set), "mean asked "+text(asked))
	case asked != nil:
		parts = append(parts, "asked "+text(asked))
	}
	if got != nil {
		parts = append(parts, "achieved "+format(*got))
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// String is the overrun in a sentence.
func (o *Overrun) String() string {
	text := fmt.Sprintf("%s: tolerated %s, got %s; %s", o.Figure, o.Tolerated, o.Got, o.Reason)
	if o.Allowed {
		return text + " (which the file allows)"
	}
	return text + ": " + o.Remedy
}

// beside stacks what was asked on what was achieved, under one name each, and
// leaves out the line that says nothing.
func beside(names, asked, achieved []string) []string {
	switch {
	case silent(asked) && silent(achieved):
		return nil
	case silent(asked):
		return append(names[1:2:2], achieved...)
	case silent(achieved):
		return append(names[0:1:1], asked...)
	}
	cells := []string{names[0] + "\n" + names[1]}
	for i := range asked {
		cells = append(cells, asked[i]+"\n"+achieved[i])
	}
	return cells
}

func silent(cells []string) bool {
	for _, c := range cells {
		if c != "-" {
			return false
		}
	}
	return true
}

// cells are delay, jitter, loss and rate; "-" is not asked for or not measured.
// form, if not nil, changes how they are written.
func (q Quality) cells(form func(string) string) []string {
	cells := []string{"-", "-", "-", "-"}
	for i, v := range []struct {
		value  *float64
		format func(float64) string
	}{{q.DelayUS, Duration}, {q.JitterUS, Duration}, {q.Loss, Percent}, {q.RateGbps, Rate}} {
		if v.value == nil {
			continue
		}
		cells[i] = v.format(*v.value)
		if form != nil {
			cells[i] = form(cells[i])
		}
	}
	return cells
}
