package main

import (
	"fmt"
	"io"

	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/fabric/probe"
	"github.com/ndklab/ndklab/internal/fabric/report/text"
	"github.com/spf13/cobra"
)

func linkVerifyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify LAB/NODE:IFACE [--count N] [--rate N] [--size N] [-o text|json] [-t FILE]",
		Short: "Probe a link and compare it with what it is set to",
		Long: `Sends numbered packets across a link, in both directions, and prints what became
of them: delay, jitter, loss, duplicates, reordering, corruption, marks and, of a link
with a rate, the rate of a burst. Delays are between the kernel's timestamps of a packet
as it leaves one end and as it arrives at the other. Those of a link between two hosts are
of two clocks: the output says how well their difference is known, and what is expected is
as much wider.

What is expected is what the model of links does with the same packets, many times with
other seeds, and beyond that the tolerance of the link. The exit code is 1 if a figure is
outside. Other traffic on the link fills the queue before its rate: the link should be
idle. Faults that match RDMA packets do not match probes.`,
		Example: `  ndklab link verify pair/client:eth0
  ndklab link verify pair/client:eth0 --count 100000 --rate 10000
  ndklab link verify pair/client:eth0 --size 4000 -o json`,
		Args: arguments(1, 1, "one link"),
	}
	output := outputFlag(cmd)
	topologyFlag(cmd)
	flags := cmd.Flags()
	var probes lab.Probes
	flags.IntVar(&probes.Count, "count", 0, fmt.Sprintf("how many probes in each direction, up to %d; absent: 1000, or what takes 10 s", lab.MaxProbes))
	flags.IntVar(&probes.PerSecond, "rate", 0, "how many each second; absent: 1000, or what takes half of the link's rate")
	flags.IntVar(&probes.Size, "size", 0, fmt.Sprintf("bytes of each from the Ethernet header on, from %d to what the link carries; absent: 128", probe.MinSize))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for name, value := range map[string]int{"count": probes.Count, "rate": probes.PerSecond, "size": probes.Size} {
			if flags.Changed(name) && value < 1 {
				return misuse("--%s %d, expected 1 at least", name, value)
			}
		}
		return withLinks(cmd, args, false, func(l *lab.Lab, endpoints, _ []string) error {
			if len(endpoints) > 1 {
				return misuse("%q is %d links, expected one: probes of several at once would be late", args[0], len(endpoints))
			}
			v, err := l.Links.Verify(cmd.Context(), endpoints[0], probes)
			if err != nil {
				return err
			}
			err = output.print(cmd.OutOrStdout(), v, func(w io.Writer) error { return text.WriteVerification(w, v) })
			if err != nil {
				return err
			}
			return verdict(v.Passed)
		})
	}
	return cmd
}
