package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/capture"
	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/topology/filter"
	"github.com/ndklab/ndklab/topology"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

func captureCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "capture LAB/NODE:IFACE... -w FILE [-t FILE] [--filter EXPRESSION] [--snaplen N] [--count N] [--duration TIME] [--ring-size SIZE [--ring-files N]]",
		Short: "Record packets of interfaces",
		Long: `Records what interfaces of a lab send and receive, as pcapng, until Ctrl-C or the
end of the lab. "-w -" writes to standard output, for Wireshark or tshark to read.
Packets are those of a wire: what a node sends as one for many is split, and
checksums are filled in. Times are the kernel's, in nanoseconds.

Where an engine carries the link, each packet that the interface sends has a comment
that says what became of it: "dropped: loss", "duplicated", "delayed 1.002ms". So packets
that never arrive are in the capture of their sender (frame.comment in Wireshark).

--filter takes an expression in the language of tcpdump, with addresses and numbers
instead of names. It decides on the packets of the wire.

The lab never waits for the capture. What cannot be recorded in time is left out and
counted, in the summary at the end and in the file.

A range or a pattern stands for several interfaces: 'LAB/leaf*:*'. With -t FILE the lab
is the file's, and interfaces are named NODE:IFACE.`,
		Example: `  ndklab capture pair/client:eth0 -w client.pcapng
  ndklab capture pair/client:eth0 -w - | tshark -r - -Y infiniband
  ndklab capture pair/client:eth0 pair/server:eth0 -w both.pcapng --filter 'udp port 4791' --duration 10s
  ndklab capture pair/client:eth0 -w ring.pcapng --ring-size 10MiB --ring-files 5`,
		Args: arguments(1, -1, "one LAB/NODE:IFACE or more"),
	}
	flags := cmd.Flags()
	file := flags.StringP("write", "w", "", "the `FILE` to write, - for standard output")
	expression := flags.String("filter", "", "record only packets that match the `EXPRESSION`")
	snaplen := flags.Int("snaplen", 0, "record `N` bytes of each packet; 0: all")
	count := flags.Int64("count", 0, "end after `N` packets; 0: never")
	duration := flags.Duration("duration", 0, "end after `TIME`; 0: never")
	ringSize := flags.String("ring-size", "", "begin another file, FILE_00002 and so on, whenever one has this `SIZE`, such as 10MiB")
	topologyFlag(cmd)
	ringFiles := flags.Int("ring-files", 5, "keep `N` files of a ring, and remove the oldest")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for i, arg := range args {
			var err error
			if args[i], err = withFileLab(cmd, arg); err != nil {
				return err
			}
		}
		labName, interfaces, err := captured(args)
		if err != nil {
			return err
		}
		r := lab.Recording{
			Capture: topology.Capture{Interfaces: interfaces, File: *file, Filter: *expression, Snaplen: *snaplen, RingFiles: *ringFiles},
			Count:   uint64(max(0, *count)),
		}
		if *file == "-" {
			r.Stream = cmd.OutOrStdout()
		}
		if *expression != "" {
			if _, err := filter.Parse(*expression); err != nil {
				return misuse("--filter: %v", err)
			}
		}
		switch {
		case *file == "":
			return misuse("capture needs -w FILE, or -w - for standard output")
		case *snaplen != 0 && *snaplen < topology.MinSnaplen:
			return misuse("--snaplen %d: expected %d bytes at least, or 0 for all", *snaplen, topology.MinSnaplen)
		case *count < 0:
			return misuse("--count %d: expected a number of packets, or 0 for no end", *count)
		case *duration < 0:
			return misuse("--duration %v: expected a time to come", *duration)
		case *ringFiles < 1:
			return misuse("--ring-files %d: expected 1 or more", *ringFiles)
		case flags.Changed("ring-files") && *ringSize == "":
			return misuse("--ring-files needs --ring-size")
		case *ringSize != "" && r.Stream != nil:
			return misuse("--ring-size needs a file, found -w -")
		case *ringSize != "":
			if r.RingSize, err = topology.ParseRingSize(*ringSize); err != nil {
				return misuse("--ring-size: %v", err)
			}
		}
		tidy(cmd)
		return record(cmd.Context(), cmd.ErrOrStderr(), labName, r, *duration)
	}
	return cmd
}

// record records until it is to end, and says what came of it.
func record(ctx context.Context, stderr io.Writer, labName string, r lab.Recording, duration time.Duration) error {
	l, err := lab.Open(ctx, labName)
	if err != nil {
		return err
	}
	defer l.Close()
	interrupted := ctx
	ctx, end := context.WithCancel(ctx)
	defer end()
	if err := capture.StandBack(); err != nil {
		return err
	}
	if r.Interfaces, err = interfacesNamed(ctx, l, r.Interfaces); err != nil {
		return err
	}
	r.Began = func() {
		if duration > 0 { // from now on, however long it took to begin
			time.AfterFunc(duration, end)
		}
		fmt.Fprintf(stderr, "capturing %s: Ctrl-C ends it\n", listed(r.Interfaces))
	}
	r.Lost = func(endpoint string, reason error) {
		fmt.Fprintf(stderr, "capture of %s is over: %v\n", endpoint, reason)
	}
	marks := lab.NewMarks()
	if err := l.Marks(ctx, marks); err != nil {
		return err
	}
	r.Marks = marks
	counts, err := l.Record(ctx, r)
	if counts == nil {
		return err
	}
	for i, c := range counts {
		fmt.Fprintln(stderr, lab.Summary(r.Interfaces[i].String(), c))
	}
	if errors.Is(err, unix.EPIPE) || err == nil && interrupted.Err() != nil {
		return nil // whoever reads has had enough
	}
	return err
}

// interfacesNamed is the interfaces that words stand for, each once.
func interfacesNamed(ctx context.Context, l *lab.Lab, words []topology.Endpoint) ([]topology.Endpoint, error) {
	var all []topology.Endpoint
	for _, word := range words {
		names, err := named(ctx, l, word.String(), "interface", func(n lab.Names) []string { return n.Interfaces })
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			node, iface, _ := strings.Cut(name, ":")
			if e := (topology.Endpoint{Node: node, Interface: iface}); !slices.Contains(all, e) {
				all = append(all, e)
			}
		}
	}
	return all, nil
}

func listed(interfaces []topology.Endpoint) string {
	var names []string
	for _, e := range interfaces {
		names = append(names, e.String())
	}
	return strings.Join(names, ", ")
}

// captured is the interfaces that arguments name, which are of one lab.
func captured(args []string) (labName string, interfaces []topology.Endpoint, err error) {
	for _, arg := range args {
		name, endpoint, _ := strings.Cut(arg, "/")
		nodeName, iface, _ := strings.Cut(endpoint, ":")
		if name == "" || nodeName == "" || iface == "" {
			return "", nil, misuse("%q is no interface, expected LAB/NODE:IFACE", arg)
		}
		if labName != "" && name != labName {
			return "", nil, misuse("one capture is of one lab, found %s and %s", labName, name)
		}
		e := topology.Endpoint{Node: nodeName, Interface: iface}
		for _, other := range interfaces {
			if e == other {
				return "", nil, misuse("%s a second time", arg)
			}
		}
		labName, interfaces = name, append(interfaces, e)
	}
	return labName, interfaces, nil
}
