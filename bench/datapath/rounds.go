package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ndklab/ndklab/bench/internal/jsonfile"
	"github.com/ndklab/ndklab/bench/internal/machine"
)

// version is set by the linker: the commit.
var version = "unknown"

// A bench is one run: figures, the probes that they are made of, and what these found.
type bench struct {
	rounds  int
	file    string
	figures []figure
	probes  []probe

	values map[string][]float64
	lacks  map[string]string // why a probe has no values
	Results
}

// parseBench reads the command line of a run.
func parseBench(args []string) (*bench, error) {
	b := &bench{values: map[string][]float64{}, lacks: map[string]string{}}
	f := flag.NewFlagSet("bench-datapath", flag.ContinueOnError)
	f.IntVar(&b.rounds, "rounds", 5, "how often each figure is measured")
	only := f.String("only", "", "regular expression of the figures to measure (default all)")
	f.StringVar(&b.file, "json", "", "file to write the results to")
	if err := parseFlags(f, args); err != nil {
		return nil, err
	}
	if b.rounds < 1 || b.rounds > 1000 {
		return nil, fmt.Errorf("%w: -rounds %d: must be 1 to 1000", errUsage, b.rounds)
	}
	expression, err := regexp.Compile(*only)
	if err != nil {
		return nil, fmt.Errorf("%w: -only: %w", errUsage, err)
	}
	var needed, names []string
	for _, f := range figures() {
		names = append(names, f.name)
		if expression.MatchString(f.name) {
			b.figures = append(b.figures, f)
			needed = append(needed, f.needs()...)
		}
	}
	if len(b.figures) == 0 {
		return nil, fmt.Errorf("%w: -only %q: there is no such figure; those that there are: %s", errUsage, *only, strings.Join(names, " "))
	}
	b.probes = slices.DeleteFunc(probes(), func(p probe) bool { return !slices.Contains(needed, p.name) })
	return b, nil
}

// runBench measures and prints everything.
func runBench(ctx context.Context, args []string) error {
	b, err := parseBench(args)
	if err != nil {
		return err
	}
	if err := checkRoot(); err != nil {
		return err
	}
	if b.file != "" {
		// Better now than in ten minutes.
		if _, err := os.Stat(filepath.Dir(b.file)); err != nil {
			return fmt.Errorf("write %s: %w", b.file, err)
		}
	}
	if err := b.begin(ctx); err != nil {
		return err
	}
	places, err := newPair()
	if err != nil {
		return err
	}
	err = b.measure(ctx, &rig{places})
	if err := errors.Join(err, closePlaces(places[:]...)); err != nil {
		return err
	}
	return b.end()
}

// begin looks at the machine and at who is there.
func (b *bench) begin(ctx context.Context) (err error) {
	b.began = time.Now()
	b.Started, b.Results.Rounds, b.MTU, b.Commit = b.began.Format(time.RFC3339), b.rounds, linkMTU, version
	b.Facts = machine.Look()
	if b.Pace, err = machine.Measure(); err != nil {
		return err
	}
	b.Tools = map[string]string{}
	for _, t := range tools {
		if !slices.ContainsFunc(b.probes, func(p probe) bool { return p.tool == t.name }) {
			continue
		}
		absent := t.absent()
		if absent == "" {
			b.Tools[t.name] = t.says(ctx)
			continue
		}
		b.Tools[t.name] = absent
		b.probes = slices.DeleteFunc(b.probes, func(p probe) bool {
			if p.tool == t.name {
				b.lacks[p.name] = absent
			}
			return p.tool == t.name
		})
	}
	b.head(os.Stdout)
	fmt.Println()
	return ctx.Err()
}

// measure measures all probes, one after the other, as often as there are rounds, so
// that a machine that is slow for a while is so for all.
func (b *bench) measure(ctx context.Context, r *rig) error {
	for round := 1; round <= b.rounds; round++ {
		began := time.Now()
		fmt.Fprintf(os.Stderr, "round %d of %d:", round, b.rounds)
		for i := range b.probes {
			p := &b.probes[i]
			if p.rounds > 0 && round > p.rounds {
				continue
			}
			fmt.Fprintf(os.Stderr, " %s", p.name)
			values, err := p.once(ctx, r)
			if ctx.Err() != nil {
				fmt.Fprintln(os.Stderr)
				return context.Cause(ctx)
			}
			if err != nil {
				fmt.Fprint(os.Stderr, " (failed)")
				b.Failures = append(b.Failures, fmt.Sprintf("%s, round %d: %v", p.name, round, err))
				b.lacks[p.name] = "not measured: " + err.Error()
				continue
			}
			for name, v := range values {
				b.values[name] = append(b.values[name], v)
			}
		}
		fmt.Fprintf(os.Stderr, ": %.0f s\n", time.Since(began).Seconds())
	}
	return nil
}

// once measures a probe once.
func (p *probe) once(ctx context.Context, r *rig) (map[string]float64, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, probePatience, fmt.Errorf("it has not ended after %v", probePatience))
	defer cancel()
	return p.measure(ctx, r)
}

// end prints and writes what was found. The error says what could not be measured.
func (b *bench) end() error {
	b.Seconds = time.Since(b.began).Seconds()
	b.Values = map[string]*Spread{}
	for name, rounds := range b.values {
		b.Values[name] = spreadOf(rounds)
	}
	for i := range b.figures {
		b.Figures = append(b.Figures, b.figures[i].of(b.values, b.lacks))
	}
	fmt.Println()
	b.table(os.Stdout)
	fmt.Println()
	b.sum(os.Stdout)
	for _, f := range b.Failures {
		fmt.Println("failed:", f)
	}
	if b.file != "" {
		if err := jsonfile.Write(b.file, &b.Results); err != nil {
			return err
		}
	}
	var unmeasured []string
	for _, p := range b.probes {
		if b.lacks[p.name] != "" && !b.has(p.name) {
			unmeasured = append(unmeasured, p.name)
		}
	}
	if unmeasured != nil {
		return fmt.Errorf("could not measure %s", strings.Join(unmeasured, ", "))
	}
	return nil
}

// has reports whether a probe was measured at least once.
func (b *bench) has(name string) bool {
	for value := range b.values {
		if probeOf(value) == name {
			return true
		}
	}
	return false
}
