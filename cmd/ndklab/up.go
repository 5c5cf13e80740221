package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/doctor"
	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/text"
	"github.com/ndklab/ndklab/internal/hosts"
	"github.com/ndklab/ndklab/topology"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

func upCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "up [FILE|-] [-o text|json] [--seed N] [--name NAME] [--reconfigure] [--node-filter NODES] [--label NAME=VALUE] [--dilation N] [--hosts HOSTS [--network CIDR]] [--dry-run] [--record FILE] [--replay FILE]",
		Aliases: []string{"deploy"},
		Short:   "Build a lab and leave it up",
		Long: `Builds the lab of a topology file and returns when every node is ready: its
commands have ended and its healthcheck has succeeded, if it has any. It starts no
workload: "ndklab run LAB" does. The lab stays up until "ndklab down LAB".

` + fileHelp + `

` + partHelp + `

--reconfigure first takes down a lab of that name that is up; "ndklab apply" changes a
lab while it goes on. --label gives the lab a label, by which ls and down select labs.
--dry-run says what the lab would have, and makes nothing.

` + dilationHelp + `

` + hostsHelp + ` With --dry-run the command says how
nodes would be laid over hosts that are alike, and what would cross.

` + logHelp,
		Example: `  ndklab up examples/pair.ndklab.yaml
  ndklab up --reconfigure                  the file in this folder, anew
  ndklab generate ring --nodes 4 | ndklab up - --name small
  ndklab up examples/leaf-spine.ndklab.yaml --node-filter 'leaf-*,spine-1' --dry-run
  ndklab up examples/leaf-spine.ndklab.yaml --hosts local:2 --dry-run
  ndklab up examples/pair.ndklab.yaml --record decisions.log
  ndklab inspect pair`,
		Args: arguments(0, 1, "one file"),
	}
	output := outputFlag(cmd)
	seed := newSeedFlag(cmd)
	logs := newLogFlags(cmd)
	flags := newFileFlags(cmd)
	flags.labels = newLabelFlag(cmd)
	flags.addDilation(cmd)
	flags.hosts.add(cmd, "lay the lab over these hosts")
	reconfigure := reconfigureFlag(cmd)
	dry := cmd.Flags().Bool("dry-run", false, "say what would be made, and make nothing")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		file, err := fileArgument(cmd, args, "one file")
		if err != nil {
			return err
		}
		if err := flags.hosts.check(); err != nil {
			return err
		}
		if flags.hosts.spec.Kind == hosts.Task {
			return forFirst(cmd.Context(), misuse("up --hosts step: the lab would end with the step, expected ndklab run, or ndklab up FILE --hosts slurm once in the allocation"))
		}
		if *dry {
			return dryRun(cmd, file, flags, seed, *reconfigure, *output)
		}
		if err := flags.hosts.isForOneRun("up"); err != nil {
			return err
		}
		tidy(cmd)
		sayMortal(cmd.ErrOrStderr())
		show := newProgress(cmd.ErrOrStderr(), *output == jsonFormat)
		l, err := start(cmd, file, flags, seed, logs, *reconfigure, show)
		show.close()
		if err != nil {
			return err
		}
		told := tellUp(cmd, l, output)
		if told != nil && !errors.Is(told, unix.EPIPE) {
			return errors.Join(told, l.Close())
		}
		// The last that can fail: a command that has failed leaves no lab.
		return errors.Join(told, l.Release(cmd.Context()), l.Close())
	}
	return cmd
}

// reconfigureFlag adds --reconfigure.
func reconfigureFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("reconfigure", false, "first take down a lab of that name that is up")
}

// start builds the lab of a file and says so.
func start(cmd *cobra.Command, file string, flags *fileFlags, seed *seedFlag, logs *logFlags, reconfigure bool, show *progress) (*lab.Lab, error) {
	t, err := flags.read(cmd, file)
	if err != nil {
		return nil, err
	}
	if err := seed.settle(t, cmd.ErrOrStderr()); err != nil {
		return nil, err
	}
	show.run(t)
	return startTopology(cmd, file, t, show, lab.Options{Hosts: flags.hosts.String(), Network: flags.hosts.network.String()}, logs, reconfigure)
}

// startTopology builds the lab of a topology that was read from a file, and shows that.
func startTopology(cmd *cobra.Command, file string, t *topology.Topology, show *progress, options lab.Options, logs *logFlags, reconfigure bool) (*lab.Lab, error) {
	if err := lab.Refuse(t); err != nil { // before another makes room for it
		return nil, err
	}
	if options.Hosts == "" {
		sayAlone(cmd.ErrOrStderr())
	}
	options.Events = show.event
	undo, closeFiles, err := logs.open(file, &options)
	if err != nil {
		return nil, err
	}
	defer closeFiles() // the lab has them, too
	if reconfigure {
		if err := makeRoom(cmd.Context(), cmd, t.Name); err != nil {
			undo()
			return nil, err
		}
	}
	begin := time.Now()
	l, err := lab.Start(cmd.Context(), t, options)
	if err != nil {
		undo()
		return nil, explained(cmd, err)
	}
	show.dilation(t.DilationFactor())
	show.say("lab %s is up after %d ms: nodes: %d, links: %d, seed %d", t.Name, time.Since(begin).Milliseconds(), len(t.Nodes), len(t.Links), t.Seed)
	return l, nil
}

// explained adds to an error that says that this machine is unable what the
// doctor finds missing.
func explained(cmd *cobra.Command, err error) error {
	if control.CodeOf(err) != control.Unable || cmd.Context().Err() != nil {
		return err
	}
	for _, f := range doctor.Examine(cmd.Context()).Obstacles() {
		err = fmt.Errorf("%w\n%s", err, f)
	}
	return err
}

// tellUp prints what was started.
func tellUp(cmd *cobra.Command, l *lab.Lab, output *format) error {
	// The ends of links outside the lab are for the user to attach to.
	externals, err := l.Externals(cmd.Context())
	if err != nil {
		return err
	}
	result := struct {
		lab.Info
		Externals []report.External `json:"externals,omitempty"`
	}{l.Info(), externals}
	return output.print(cmd.OutOrStdout(), result, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "lab %s is up: `ndklab inspect %s` shows it, `ndklab down %s` takes it down\n", result.Lab, result.Lab, result.Lab)
		return errors.Join(err, text.WriteExternals(w, result.Externals))
	})
}
