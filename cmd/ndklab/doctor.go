package main

import (
	"github.com/ndklab/ndklab/internal/fabric/doctor"
	"github.com/spf13/cobra"
)

func doctorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor [-o text|json]",
		Short: "Say what this machine can do, and the remedy for what it cannot",
		Long: `Tries out what labs need of this machine, as the present user: privileges, user
namespaces, links, the kernel's traffic control, control groups, socket offloads
and buffers, and others. Each finding is ok, limited or missing, and has what follows
from it and the remedy. Nothing of this stays.

"verbs" is about programs for RDMA. A program that brings its own libibverbs.so.1,
by an absolute path or RPATH, or is linked statically, does not find ndklab's: use
your distribution's package of it, or link it dynamically and without RPATH.

The exit code is 3 if labs cannot run here.`,
		Example: "  ndklab doctor\n  ndklab doctor -o json",
		Args:    arguments(0, 0, "no arguments"),
	}
	output := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
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
