package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/text"
	"github.com/spf13/cobra"
)

func countersCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "counters [LAB[/NODE]] [-o text|json] [--watch [INTERVAL]] [-t FILE]",
		Short: "Show the NDK counters of nodes, once or as they count",
		Long: `Shows the counters of the adapters of a lab or of some nodes, since they came up. They
are those of NDIS_NDK_PERFORMANCE_COUNTERS, under their names there, and below these
those of the transport, which are

  packets_sent, packets_received   RoCE packets of the queue pairs and of the
                                   connection manager, with those sent again
  super_packets_sent, ..._received how often the kernel took or gave several at once
  segmentation_refused             how often the kernel refused to take several
  acks_sent, acks_received         acknowledgements, selective ones too
  naks_sent, naks_received         those that say that a packet is missing
  rnr_naks_sent, ..._received      those that say that no receive is posted
  retransmitted                    request packets sent again
  spurious_retransmissions         those of them that the peer had already, as its
                                   answers show
  timeouts                         how often an acknowledgement did not come in time,
                                   so that the peer was asked
  duplicates                       requests received again
  out_of_sequence                  packets received ahead of one that was missing
  cnps_received                    congestion notifications of peers, without effect
  unknown_qp                       packets dropped: no queue pair has their number
  misdirected                      packets dropped: a queue pair has their number, but
                                   they are not from its peer, or of another partition
                                   or kind; and messages about a connection that are
                                   not from its peer
  early_dropped                    packets ahead of one that was missing, dropped
                                   for want of room in the reorder_buffer
  bad_length                       packets longer or shorter than their kind and the
                                   path's MTU allow; dropped, or refused
  malformed, icrc_errors           packets dropped: not RoCE; changed on the way
  receive_overflow                 packets lost to a full receive buffer
  send_too_big, send_dropped       packets not sent: above the MTU; for other reasons

--watch shows what was counted in each interval, of 1 s unless another is given, until
Ctrl-C. The exit code is 0 then. Counters that did not change are left out.
ActiveConnection, which falls as well as rises, is the number at the end of the
interval. With -o json, each interval is one line with one object.`,
		Example: `  ndklab counters pair
  ndklab counters pair/client -o json
  ndklab counters 'fabric/h[1-4]'
  ndklab counters pair --watch
  ndklab counters pair/client --watch 250ms`,
	}
	output := outputFlag(cmd)
	topologyFlag(cmd)
	var interval time.Duration // 0: the counters are shown once
	cmd.Flags().Func("watch", "show what changes from now on, every `INTERVAL`", func(text string) (err error) {
		interval, err = parseInterval(text)
		return err
	})
	cmd.Flags().Lookup("watch").NoOptDefVal = "1s"
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if interval > 0 && len(args) == 2 {
			return nil // --watch INTERVAL
		}
		return arguments(0, 1, "one lab or node")(cmd, args)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		// pflag leaves the interval behind --watch among the arguments.
		if last := len(args) - 1; interval > 0 && last >= 0 {
			behind, err := parseInterval(args[last])
			if err != nil && last > 0 {
				return misuse("%q is no interval for --watch: %w", args[last], err)
			}
			if err == nil {
				interval, args = behind, args[:last]
			}
		}
		return withTarget(cmd, args, func(l *lab.Lab, word string) error {
			names, err := named(cmd.Context(), l, word, "node", machines)
			if err != nil {
				return err
			}
			if interval > 0 {
				return watchCounters(cmd.Context(), cmd.OutOrStdout(), l, names, interval, *output)
			}
			nodes, err := nodesOf(cmd.Context(), l, names)
			if err != nil {
				return err
			}
			data := struct {
				Lab   string        `json:"lab"`
				Nodes []report.Node `json:"nodes"`
			}{l.Info().Lab, nodes}
			return output.print(cmd.OutOrStdout(), data, func(w io.Writer) error { return text.WriteCounters(w, nodes) })
		})
	}
	return cmd
}

// nodesOf is the state of the nodes of these names, or of all for "".
func nodesOf(ctx context.Context, l *lab.Lab, names []string) ([]report.Node, error) {
	if len(names) == 1 {
		return l.Nodes.Inspect(ctx, names[0])
	}
	all, err := l.Nodes.Inspect(ctx, "")
	return slices.DeleteFunc(all, func(n report.Node) bool { return !slices.Contains(names, n.Name) }), err
}

// The bounds of an interval. Asking all nodes takes a few milliseconds.
const (
	shortestInterval = 10 * time.Millisecond
	longestInterval  = 24 * time.Hour
)

func parseInterval(text string) (time.Duration, error) {
	interval, err := time.ParseDuration(text)
	if err != nil || interval < shortestInterval || interval > longestInterval {
		return 0, errors.New("expected a time from 10ms to 24h, such as 2s")
	}
	return interval, nil
}

// watchCounters prints what nodes count in every interval, until ctx ends, which
// is how it is meant to end.
func watchCounters(ctx context.Context, w io.Writer, l *lab.Lab, names []string, interval time.Duration, output format) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	before, err := nodesOf(ctx, l, names)
	last := time.Now()
	for err == nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		case <-l.Done():
			return l.Err()
		}
		var nodes []report.Node
		if nodes, err = nodesOf(ctx, l, names); err != nil {
			break
		}
		now := time.Now()
		changes := &report.Changes{Lab: l.Info().Lab, Time: now, Seconds: now.Sub(last).Seconds() / float64(max(l.Info().Dilation, 1)), Nodes: report.Since(before, nodes)}
		before, last = nodes, now
		if output == jsonFormat {
			err = written(report.WriteJSONLine(w, changes))
		} else {
			err = written(text.WriteChanges(w, changes))
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}
