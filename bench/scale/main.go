// Command scale measures what labs cost as they grow: how long a ring of so many
// hosts takes to come up, every node ready, those of small labs with an agent, and every link with
// its middle, and to go down; how much processor time that is; and what an idle node
// takes of memory and processor time. Then a ring of hosts each connects to the next
// and exchanges verified messages. Mininet's bare hosts are measured beside it where
// the command mn is on PATH.
//
//	scale [-nodes 10,100,...] [-exchange N] [-json FILE]
//
// The figures that have a limit are held against it; the program exits with 1 if one
// was missed. Time is that of a user who waits; on a machine with other work to do it
// says less than the processor time beside it.
//
// Start reading at curve.go.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/ndklab/ndklab/bench/internal/jsonfile"
	"github.com/ndklab/ndklab/internal/fabric/lab"
	"golang.org/x/sys/unix"
)

// patience bounds the whole run.
const patience = 15 * time.Minute

func main() {
	lab.Child()
	nodes := flag.String("nodes", "10,100,200,500,1000,2000", "numbers of hosts, separated by commas")
	exchange := flag.Int("exchange", 1000, "hosts of the ring that exchanges messages; 0: none")
	mininet := flag.Int("mininet", 500, "the most hosts that Mininet is asked for")
	idle := flag.Duration("idle", 5*time.Second, "how long idle nodes are watched")
	file := flag.String("json", "", "file to write the results to")
	flag.Parse()
	sizes, err := numbers(*nodes)
	if err != nil || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, unix.SIGTERM)
	defer stop()
	r := newResults()
	err = measure(ctx, r, sizes, *exchange, *mininet, *idle)
	if err == nil && *file != "" {
		err = jsonfile.Write(*file, r)
	}
	if err == nil {
		err = r.missed()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-scale:", err)
		os.Exit(1)
	}
}

// numbers reads a list of them.
func numbers(list string) (all []int, err error) {
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 3 {
			return nil, fmt.Errorf("%q is no number of hosts in a ring", text)
		}
		all = append(all, n)
	}
	return all, nil
}

// measure measures all there is, and prints it on the way.
func measure(ctx context.Context, r *results, sizes []int, exchange, mininet int, idle time.Duration) error {
	r.head()
	for _, kind := range []kind{plain, impaired} {
		for _, n := range sizes {
			row, err := curve(ctx, kind, n, idle)
			if err != nil {
				return fmt.Errorf("%s ring of %d: %w", kind, n, err)
			}
			r.add(row)
		}
	}
	if err := r.compare(ctx, sizes, mininet); err != nil {
		return err
	}
	if exchange == 0 {
		return nil
	}
	e, err := exchanged(ctx, exchange)
	if err != nil {
		return fmt.Errorf("exchange in a ring of %d: %w", exchange, err)
	}
	r.exchange(e)
	return nil
}
