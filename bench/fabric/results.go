package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/ndklab/ndklab/bench/internal/machine"
)

// Results are the table, as the JSON file has it.
type Results struct {
	machine.Facts
	Engines []string     `json:"engines"`
	Started string       `json:"started"` // RFC 3339
	Seconds float64      `json:"seconds"`
	Passed  bool         `json:"passed"` // every row is ok
	Machine machine.Pace `json:"machine"`
	Rows    []Row        `json:"rows"`
	Lacks   []Lack       `json:"lacks,omitempty"`

	began time.Time
}

// A Lack is a part that an engine has nothing to show for.
type Lack struct {
	Part   string `json:"part"`
	Engine string `json:"engine"`
	Why    string `json:"why"`
}

// A Row is one figure.
type Row struct {
	Part   string `json:"part"`
	Engine string `json:"engine"`
	What   string `json:"what"`
	Asked  string `json:"asked"`
	Limit  string `json:"limit"`
	Got    string `json:"got"`
	OK     bool   `json:"ok"`
	Error  string `json:"error,omitempty"` // why it could not be measured
	Note   string `json:"note,omitempty"`
	// The reason if a limit was missed by no fault of the link's: "not offered", that
	// is, its sender did not give it enough, or "overrun", that is, the engine itself
	// reports that the host could not keep up.
	Why string `json:"why,omitempty"`
	// HostIdle is the share of all processor time that nobody used meanwhile: close
	// to 0, the host was saturated.
	HostIdle float64 `json:"host_idle"`
	// Values are the figures behind Got, in the units that their names end with.
	Values map[string]float64 `json:"values,omitempty"`
}

// A finding holds what was measured for a row.
type finding struct {
	got    string
	ok     bool
	note   string
	why    string // if it is not ok
	values map[string]float64
}

func (r *Results) begin(engines []string) (err error) {
	r.began = time.Now()
	r.Started = r.began.Format(time.RFC3339)
	r.Engines = engines
	r.Facts = machine.Look()
	fmt.Printf("%s, cores: %d, load: %s\n", r.Kernel, r.Cores, r.Load)
	if r.Machine, err = machine.Measure(); err != nil {
		return err
	}
	fmt.Printf("%s\n\n", r.Machine)
	fmt.Println(line("PART", "ENGINE", "WHAT", "ASKED", "GOT", "LIMIT", ""))
	return nil
}

func (r *Results) end() {
	r.Seconds = time.Since(r.began).Seconds()
	missed := 0
	for _, row := range r.Rows {
		if !row.OK {
			missed++
		}
	}
	r.Passed = missed == 0
	fmt.Printf("\n%d figures in %.0f s, missed: %d\n", len(r.Rows), r.Seconds, missed)
}

// missed returns an error that has a line for each row which is not as it should be.
func (r *Results) missed() error {
	var missed []string
	for _, row := range r.Rows {
		switch {
		case row.OK:
		case row.Error != "":
			missed = append(missed, fmt.Sprintf("%s, %s: %s, %s: not measured: %s", row.Part, row.Engine, row.What, row.Asked, row.Error))
		default:
			missed = append(missed, fmt.Sprintf("%s, %s: %s, %s: got %s, limit %s", row.Part, row.Engine, row.What, row.Asked, row.Got, row.Limit))
		}
	}
	if missed == nil {
		return nil
	}
	return fmt.Errorf("missed:\n  %s", strings.Join(missed, "\n  "))
}

// lack notes that an engine has nothing to show for a part, and why.
func (r *Results) lack(part, engine, why string) {
	r.Lacks = append(r.Lacks, Lack{part, engine, why})
	fmt.Println(line(part, engine, "-", "-", "-", "-", why))
}

// measure fills in a row with what f finds, and prints it.
func (b *bench) measure(row Row, f func() (finding, error)) {
	before := cpuTimes()
	found, err := f()
	row.HostIdle = idleSince(before)
	row.Engine = cmp.Or(row.Engine, b.engine)
	row.Got, row.OK, row.Note, row.Why, row.Values = found.got, found.ok, found.note, found.why, found.values
	if err != nil {
		row.Error, row.Got, row.OK = err.Error(), "not measured", false
	}
	b.report(row)
}

func (r *Results) add(row Row) {
	r.Rows = append(r.Rows, row)
	fmt.Println(line(row.Part, row.Engine, row.What, row.Asked, row.Got, row.Limit, row.verdict()))
	for _, more := range []string{row.Error, row.Note} {
		if more != "" {
			fmt.Printf("%18s%s\n", "", more)
		}
	}
}

// key returns what a row is about, apart from the engine.
func (r *Row) key() [3]string { return [3]string{r.Part, r.What, r.Asked} }

func (r *Row) verdict() string {
	if r.OK {
		return "ok"
	}
	return fmt.Sprintf("%s (host %.0f %% idle)", strings.ToUpper(cmp.Or(r.Why, "missed")), 100*r.HostIdle)
}

func line(part, engine, what, asked, got, limit, verdict string) string {
	return strings.TrimRight(fmt.Sprintf("%-8s %-7s  %-34s %-14s %-31s %-28s %s", part, engine, what, asked, got, limit, verdict), " ")
}

// compare writes the table once more, with the engines side by side.
func (r *Results) compare(w io.Writer) {
	write := func(cells []string, engines []string) {
		text := fmt.Sprintf("%-8s %-34s %-14s %-28s", cells[0], cells[1], cells[2], cells[3])
		for _, e := range engines {
			text += fmt.Sprintf(" %-38s", e)
		}
		fmt.Fprintln(w, strings.TrimRight(text, " "))
	}
	write([]string{"PART", "WHAT", "ASKED", "LIMIT"}, r.Engines)
	written := map[[3]string]bool{}
	for _, row := range r.Rows {
		if written[row.key()] {
			continue
		}
		written[row.key()] = true
		cells := make([]string, len(r.Engines))
		for i, e := range r.Engines {
			cells[i] = r.lacking(row.Part, e)
			for _, other := range r.Rows {
				if other.key() == row.key() && other.Engine == e {
					cells[i] = other.Got + map[bool]string{true: "  ok", false: "  MISSED"}[other.OK]
				}
			}
		}
		write([]string{row.Part, row.What, row.Asked, row.Limit}, cells)
	}
}

// lacking returns the text in place of a figure that an engine does not have.
func (r *Results) lacking(part, engine string) string {
	for _, l := range r.Lacks {
		if l.Part == part && l.Engine == engine {
			return "-  " + l.Why
		}
	}
	return "-"
}

// quantile returns the q-th quantile, 0 to 1, of values, which it sorts.
func quantile[T cmp.Ordered](values []T, q float64) T {
	slices.Sort(values)
	return values[min(len(values)-1, int(q*float64(len(values))))]
}

// median returns the middle one of values, which it sorts.
func median[T cmp.Ordered](values []T) T { return quantile(values, 0.5) }
