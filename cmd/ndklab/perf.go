package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/fabric/perftest"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/text"
	"github.com/ndklab/ndklab/internal/fabric/simulate"
	"github.com/ndklab/ndklab/topology"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
)

func perfCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "perf LAB|FILE|- TEST [--from NODE] [--to NODE] [-s SIZE] [-n MESSAGES|-D TIME] [-q QPS] [--depth MESSAGES] [-t FILE] [--simulate [--memory SIZE]] [-o text|json]",
		Short: "Measure throughput or latency between nodes",
		Long: `Runs one of perftest's tests between two nodes of a lab that is up, or of a lab that it
makes of a file and takes down again. send-bw, write-bw and read-bw stream messages, many
of them in flight. send-lat, write-lat and read-lat send one at a time. The latency of
sends and writes is half of a round trip, since the other end answers in kind. The
latency of reads, and of messages that are streamed, is from post to completion.

The node of --from connects and posts, the node of --to serves. In a lab of two hosts
they need not be named. --pattern has several flows at once between --nodes, names or
patterns such as leaf-*: ring, all-to-all and permutation; incast, from all of them to
--to; and broadcast, from --from to all of them.

-s takes a size, such as 64KiB; several with commas, one after the other; or all, which
is 2B, 4B ... to 8MiB. With --mixed each message has one of the sizes. One size takes 2
seconds, each of several half a second, unless -D or -n says otherwise.

With --poll each end keeps a processor busy: it pays on a machine that has one to spare
for each node. -t FILE stands for a lab that is up. --verify takes memory for twice
--depth messages of the largest size on each QP.

With --simulate the file's lab runs in virtual time, as with "ndklab run --simulate":
the result is what its links do to messages, whatever this machine can do.

The lab's own workloads, timeline and checks do not run. The exit code is 1 if a message
failed or, with --verify, arrived wrong. The flags mean what the keys of a workload mean
in a topology file.`,
		Example: `  ndklab perf pair write-bw
  ndklab perf pair send-lat --from client --to server -s 8B -n 10000 --poll
  ndklab perf examples/pair.ndklab.yaml read-bw -s all
  ndklab perf examples/pair.ndklab.yaml write-lat -n 100000 --simulate
  ndklab perf pair write-bw -s 4KiB,64KiB,1MiB --depth 64 -q 4 --verify -o json
  ndklab perf pair send-bw --mixed -s 64B,4KiB,64KiB --srq --rate 1gbit -D 10s
  ndklab perf cluster write-bw --pattern incast --to node-1 --nodes 'node-*'`,
	}
	output := outputFlag(cmd)
	seed := newSeedFlag(cmd)
	files := newFileFlags(cmd)
	file := topologyFlag(cmd)
	simulated := cmd.Flags().Bool("simulate", false, "run it in virtual time, without a lab")
	p := newPerfFlags(cmd)
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if *file != "" {
			return arguments(1, 1, "a test without the lab, which -t gives")(cmd, args)
		}
		return arguments(2, 2, "a lab or file and a test")(cmd, args)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		tidy(cmd)
		settings, err := p.settings(args[len(args)-1])
		if err != nil {
			return err
		}
		if !*simulated && *p.memory > 0 {
			return misuse("--memory is for --simulate")
		}
		measure := p.inLab
		if *simulated {
			measure = p.simulated
		}
		result, err := measure(cmd, args[:len(args)-1], files, seed, settings)
		if err != nil {
			return err
		}
		err = output.print(cmd.OutOrStdout(), result, func(w io.Writer) error { return text.WriteMeasurement(w, result) })
		if err != nil && !errors.Is(err, unix.EPIPE) {
			return err
		}
		if result.Interrupted {
			return exitStatus(exitInterrupted)
		}
		return verdict(result.Passed)
	}
	return cmd
}

// perfFlags are the flags of perf that are about the workload.
type perfFlags struct {
	flags  *pflag.FlagSet
	sizes  []string
	nodes  []string
	mixed  bool
	memory *uint64
}

func newPerfFlags(cmd *cobra.Command) *perfFlags {
	f := cmd.Flags()
	p := &perfFlags{flags: f, memory: newMemoryFlag(cmd)}
	f.String("from", "", "the `NODE` that connects and posts")
	f.String("to", "", "the `NODE` that serves")
	f.StringSliceVarP(&p.sizes, "size", "s", nil, "the `SIZE` of messages, several with commas, or all; absent: 64KiB, for latency 8B")
	f.BoolVar(&p.mixed, "mixed", false, "each message has one of the sizes, instead of one size after the other")
	f.StringP("count", "n", "", "how many `MESSAGES` each flow completes, of each size")
	f.StringP("duration", "D", "", "for how long messages are posted, of each size: a `TIME` such as 10s")
	f.String("depth", "", "how many `MESSAGES` are in flight on each QP; absent: 16, for latency always 1")
	f.StringP("qps", "q", "", "how many `QPS` each flow has; absent: 1")
	f.BoolP("inline", "I", false, "send messages inline; they must fit in the adapter's MaxInlineDataSize")
	f.Bool("srq", false, "have the serving node's QPs share one SRQ, for sends")
	f.Bool("poll", false, "poll for completions instead of waiting for events")
	f.String("rate", "", "post no more than this `RATE` of payload, such as 1gbit, in each flow")
	f.String("warmup", "", "what comes first and is not measured, of each size: a `TIME` such as 500ms")
	f.BoolP("verify", "V", false, "compare every byte of every message")
	f.Bool("reconnect", false, "connect again when a connection fails, and go on")
	f.String("pattern", "", "the `PATTERN` of several flows; absent: --from with --to")
	f.StringSliceVar(&p.nodes, "nodes", nil, "the `NODES` of a pattern, with commas: names, or patterns such as leaf-*")
	return p
}

// settings returns what the flags say, as topology.ParseWorkload takes it.
func (p *perfFlags) settings(test string) ([]string, error) {
	var given []string
	add := func(key, value string) { given = append(given, key+"="+value) }
	for _, key := range perftest.Keys {
		if f := p.flags.Lookup(key); f.Changed {
			add(key, f.Value.String())
		}
	}
	if p.flags.Changed("poll") && p.flags.Lookup("poll").Value.String() == "true" {
		add("completion", "poll")
	}
	if p.nodes != nil {
		add("nodes", list(p.nodes))
	}
	switch {
	case p.mixed && len(p.sizes) == 0:
		return nil, misuse("--mixed needs the sizes, expected -s with several")
	case p.mixed:
		add("size", "{mix: "+list(p.sizes)+"}")
	case len(p.sizes) > 1:
		add("size", list(p.sizes))
	case len(p.sizes) == 1:
		add("size", p.sizes[0])
	}
	settings, err := perftest.Settings(test, given)
	if err != nil {
		return nil, misuse("%w", err)
	}
	return settings, nil
}

// list is words as a list in YAML.
func list(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = fmt.Sprintf("%q", w) // a pattern may begin with *
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// open is the lab of the argument or of -t: one that is up, or one made of a file.
func (p *perfFlags) open(cmd *cobra.Command, args []string, files *fileFlags, seed *seedFlag, show *progress) (*lab.Lab, error) {
	if len(args) > 0 && isFile(args[0]) {
		return start(cmd, args[0], files, seed, &logFlags{flags: cmd.Flags()}, false, show)
	}
	if seed.given || files.given() {
		return nil, misuse("--seed, --name and --node-filter are for a file that a lab is made of, and there is none")
	}
	name, err := labArgument(cmd, args, "a lab")
	if err != nil {
		return nil, err
	}
	l, err := lab.Open(cmd.Context(), name)
	if err != nil {
		return nil, err
	}
	show.dilation(l.Info().Dilation)
	if err := l.Watch(cmd.Context(), show.event); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// inLab runs the workload of the settings in the lab of the argument.
func (p *perfFlags) inLab(cmd *cobra.Command, args []string, files *fileFlags, seed *seedFlag, settings []string) (*report.Measurement, error) {
	show := newProgress(cmd.ErrOrStderr(), true)
	defer show.close()
	l, err := p.open(cmd, args, files, seed, show)
	if err != nil {
		return nil, err
	}
	run, err := p.measure(cmd.Context(), l, settings)
	if err := errors.Join(err, l.Close()); err != nil {
		return nil, err
	}
	return measurement(run), nil
}

func (p *perfFlags) measure(ctx context.Context, l *lab.Lab, settings []string) (*report.Run, error) {
	standing, err := l.Standing(ctx)
	if err != nil {
		return nil, err
	}
	w, err := p.workload(standing.Topology, settings)
	if err != nil {
		return nil, err
	}
	return reported(l.RunWorkloads(ctx, w))
}

// simulated runs the workload of the settings in virtual time, in the topology of the
// argument, which is a file.
func (p *perfFlags) simulated(cmd *cobra.Command, args []string, files *fileFlags, seed *seedFlag, settings []string) (*report.Measurement, error) {
	if len(args) == 0 || !isFile(args[0]) {
		return nil, misuse("--simulate is for a file, and there is none")
	}
	t, err := files.read(cmd, args[0])
	if err != nil {
		return nil, err
	}
	if err := seed.settle(t, cmd.ErrOrStderr()); err != nil {
		return nil, err
	}
	w, err := p.workload(t, settings)
	if err != nil {
		return nil, err
	}
	only := t.Only(w)
	if err := simulate.Refuse(only); err != nil {
		return nil, err
	}
	run, err := reported(runSimulation(cmd.Context(), only, share{*p.memory, 1}, nil))
	if err != nil {
		return nil, err
	}
	return measurement(run), nil
}

// measurement is the result of the only workload of a run.
func measurement(r *report.Run) *report.Measurement {
	return &report.Measurement{Lab: r.Lab, Seed: r.Seed, Passed: r.Passed, Simulated: r.Simulated, Dilation: r.Dilation, Workload: r.Workloads[0], Problems: r.Problems, Interrupted: r.Interrupted, SetByHand: r.SetByHand}
}

// workload is the workload of the settings between a topology's nodes.
func (p *perfFlags) workload(t *topology.Topology, settings []string) (topology.Workload, error) {
	settings, err := p.withEnds(t, settings)
	if err != nil {
		return topology.Workload{}, err
	}
	w, err := t.ParseWorkload(settings)
	if err != nil {
		return topology.Workload{}, misuse("%s", flagsOf(err.Error()))
	}
	return w, nil
}

// withEnds adds the nodes of a pair that were not named, if there is only one way to.
func (p *perfFlags) withEnds(t *topology.Topology, settings []string) ([]string, error) {
	if p.flags.Changed("pattern") || p.flags.Changed("from") && p.flags.Changed("to") {
		return settings, nil
	}
	hosts := t.Hosts()
	from, to := p.flags.Lookup("from").Value.String(), p.flags.Lookup("to").Value.String()
	given := max(from, to)
	if len(hosts) != 2 || given != "" && !slices.Contains(hosts, given) {
		return nil, misuse("lab %s has the hosts %s, expected --from and --to with two of them", t.Name, strings.Join(hosts, ", "))
	}
	if from == hosts[1] || to == hosts[0] {
		hosts[0], hosts[1] = hosts[1], hosts[0]
	}
	if from == "" {
		settings = append(settings, "from="+hosts[0])
	}
	if to == "" {
		settings = append(settings, "to="+hosts[1])
	}
	return settings, nil
}

// flagsOf has a message about settings name the flags instead.
func flagsOf(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if key, _, ok := strings.Cut(line, ": "); ok && (slices.Contains(perftest.Keys, key) || key == "size" || key == "nodes") {
			lines[i] = "--" + line
		}
	}
	return strings.Join(lines, "\n")
}
