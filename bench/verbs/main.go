// Command verbs measures what programs for RDMA that nobody here wrote get in nodes: perftest and UCX, between two hosts of
// a lab that a plain link joins. Their peers are the same programs over TCP, and the adapter's own provider in the same lab.
//
//	verbs [-rounds N] [-only EXPRESSION] [-json FILE] [-short]
//
// Probes take turns, and do so again in each round, because machines have slow minutes. A figure is the median of the
// rounds. The exit code is 0 also if goals are missed: it is a measurement; 1 if something could not be measured. With
// -short there is one round, and the exit code is 1 too if a figure is beyond what a busy machine excuses.
//
// Start reading at probes.go for what is run, at figures.go for what is made of it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"time"

	"github.com/ndklab/ndklab/bench/internal/jsonfile"
	"github.com/ndklab/ndklab/bench/internal/machine"
	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/topology"
	"golang.org/x/sys/unix"
)

// patience bounds the whole run.
const patience = 30 * time.Minute

func main() {
	lab.Child()
	rounds := flag.Int("rounds", 5, "how often each figure is measured")
	only := flag.String("only", "", "regular expression of the figures to measure (default all)")
	out := flag.String("json", "", "file to write the results to")
	short := flag.Bool("short", false, "one round, with limits for a busy machine")
	flag.Parse()
	expression, err := regexp.Compile(*only)
	if err != nil || *rounds < 1 || *rounds > 1000 || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "bench-verbs: -rounds is 1 to 1000, -only a regular expression, and there are no arguments")
		flag.Usage()
		os.Exit(2)
	}
	if *short {
		*rounds = 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, unix.SIGTERM)
	defer stop()
	r := &results{Facts: machine.Look(), User: os.Geteuid(), Started: time.Now().Format(time.RFC3339), Values: map[string][]float64{}, Lacks: map[string]string{}}
	if err = r.choose(expression); err == nil {
		err = r.measure(ctx, *rounds)
	}
	if err == nil {
		r.judge()
		r.table(os.Stdout)
	}
	if err == nil && *out != "" {
		err = jsonfile.Write(*out, r)
	}
	if err == nil {
		err = r.failed(*short)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-verbs:", err)
		os.Exit(1)
	}
}

// measure has all probes that are needed run in a lab of their own, in rounds.
func (r *results) measure(ctx context.Context, rounds int) (err error) {
	topo, err := topology.Parse("bench-verbs.ndklab.yaml", []byte(file(os.Getpid())))
	if err != nil {
		return err
	}
	l, err := lab.Start(ctx, topo, lab.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	for round := range rounds {
		if r.needs(openTime) || r.needs(openMemory) {
			if err := r.open(ctx, l); err != nil {
				r.Failures = append(r.Failures, fmt.Sprintf("open, round %d: %v", round+1, err))
			}
		}
		for i, p := range probes {
			if !r.needs(p.name) {
				continue
			}
			if lacks := p.lacks(); lacks != "" {
				r.Lacks[p.name] = lacks
				continue
			}
			ran, err := l.RunWorkloads(ctx, topo.Workloads[i])
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err == nil {
				err = r.take(p, ran.Workloads[0])
			}
			if err != nil {
				r.Failures = append(r.Failures, fmt.Sprintf("%s, round %d: %v", p.name, round+1, err))
			}
		}
	}
	return nil
}
