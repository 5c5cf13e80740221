package main

import (
	"net"
	"strconv"

	"github.com/ndklab/ndklab/internal/fabric/monitor"
	"github.com/spf13/cobra"
)

// metricsAddress is the default of --listen. The port is that of OpenTelemetry's exporter for Prometheus.
const metricsAddress = "127.0.0.1:9464"

func metricsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "metrics [LAB] [--listen ADDRESS | --once] [-t FILE]",
		Short: "Serve the metrics of a lab to Prometheus",
		Long: `Serves the metrics of a lab that is up at /metrics, for Prometheus to scrape: in the format
OpenMetrics, or in the older text format, as the client wants it. The URL goes to
standard output. The lab is asked at each scrape and not in between. docs/metrics.md has
all metrics; examples/observe has a configuration of Prometheus, a dashboard of Grafana
and alerts.

It ends with Ctrl-C, with exit code 0, or with the lab, and says so then. Prometheus knows
a lab that has ended as a target that is down.

--listen takes HOST:PORT. The default is reached from this machine only, by any of its
users. Port 0 stands for any that is free. --once writes the metrics to standard output in
the text format, as the textfile collector of node_exporter takes it, and ends.

Without LAB it is the lab of the one *.ndklab.yaml in the current folder.`,
		Example: `  ndklab metrics pair
  ndklab metrics pair --listen 127.0.0.1:0
  ndklab metrics pair --once > pair.prom`,
		Args: labArguments(0, 0, "one lab"),
	}
	topologyFlag(cmd)
	listen := cmd.Flags().String("listen", metricsAddress, "serve at this `ADDRESS`, HOST:PORT")
	once := cmd.Flags().Bool("once", false, "write the metrics to standard output and end")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *once && cmd.Flags().Changed("listen") {
			return misuse("metrics takes --listen or --once, found both")
		}
		if err := checkAddress(*listen, metricsAddress); err != nil {
			return err
		}
		tidy(cmd)
		labName, err := labArgument(cmd, args, "one lab")
		if err != nil {
			return err
		}
		err = monitor.Run(cmd.Context(), monitor.Params{Metrics: &monitor.Metrics{Lab: labName, Listen: *listen, Once: *once}, Version: version}, nil, cmd.OutOrStdout(), cmd.ErrOrStderr())
		if !*once && cmd.Context().Err() != nil {
			return nil
		}
		return err
	}
	return cmd
}

// checkAddress returns an error, with an example, for what is no address to listen at.
func checkAddress(address, example string) error {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return misuse("--listen %q: expected HOST:PORT, such as %s", address, example)
	}
	return nil
}
