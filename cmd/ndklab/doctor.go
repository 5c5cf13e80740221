package main

import (
	"github.com/ndklab/ndklab/internal/fabric/doctor"
	"github.com/spf13/cobra"
)

func doctorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor [--hosts HOSTS [--network CIDR]] [-o text|json]",
		Short: "Say what this machine can do, and the remedy for what it cannot",
		Long: `Tries out what labs need of this machine, as the present user: privileges, user
namespaces, links, the kernel's traffic control, control groups, socket offloads
and buffers, and others. Each finding is ok, limited or missing, and has what follows
from it and the remedy. Nothing of this stays.

"verbs" is about programs for RDMA. A program that brings its own libibverbs.so.1,
by an absolute path or RPATH, or is linked statically, does not find ndklab's: use
your distribution's package of it, or link it dynamically and without RPATH.

With --hosts the command looks at other hosts, as "ndklab run --hosts" would lay a lab over
them, and prints a row for each: whether labs can run there, what is missing with the
remedy, and why a host is not there.

The exit code is 3 if labs cannot run here, or on one of the hosts.`,
		Example: "  ndklab doctor\n  ndklab doctor -o json\n  ndklab doctor --hosts slurm        all hosts of the allocation",
		Args:    arguments(0, 0, "no arguments"),
	}
	output := outputFlag(cmd)
	var over hostsFlag
	over.add(cmd, "look at these hosts")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := over.check(); err != nil {
			return err
		}
		if over.given() {
			return examineHosts(cmd, &over, output)
		}
		d := doctor.Examine(cmd.Context())
		if err := cmd.Context().Err(); err != nil {
			return err
		}
		if err := output.print(cmd.OutOrStdout(), d, d.WriteText); err != nil {
			return err
		}
		if !d.CanRun {
			return exitStatus(exitUnable)
		}
		return nil
	}
	return cmd
}

// examineHosts prints what there is to say about other hosts.
func examineHosts(cmd *cobra.Command, over *hostsFlag, output *format) error {
	spec := over.spec
	spec.Network = over.network.String()
	s, err := doctor.ExamineHosts(cmd.Context(), spec)
	if err != nil {
		return err
	}
	if err := output.print(cmd.OutOrStdout(), s, s.WriteText); err != nil {
		return err
	}
	if !s.CanRun {
		return exitStatus(exitUnable)
	}
	return nil
}
