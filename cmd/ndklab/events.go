package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/text"
	"github.com/spf13/cobra"
)

func eventsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "events [LAB|--all] [-f] [--since TIME] [-o text|json] [-t FILE]",
		Short: "Print what happened in a lab, and what happens",
		Long: `Prints what happened in a lab: the last 4096 events, which the lab keeps. --follow goes
on with the events that come, until the lab is down or Ctrl-C. The exit code is 0 after
Ctrl-C, too. Kinds of events are

` + kindsHelp() + `
With -o json, each event is one line with one object. --all takes all labs of this user
that are up.`,
		Example: `  ndklab events pair
  ndklab events pair -f -o json
  ndklab events pair --since 5m
  ndklab events --all -f`,
	}
	output := outputFlag(cmd)
	topologyFlag(cmd)
	follow := cmd.Flags().BoolP("follow", "f", false, "go on with the events that come")
	all := cmd.Flags().Bool("all", false, "all labs of this user")
	since := func() time.Time { return time.Time{} }
	cmd.Flags().Func("since", "print no events from before `TIME`, such as 5m (ago) or 2026-01-02T15:04:05Z", func(text string) (err error) {
		since, err = parseSince(text)
		return err
	})
	cmd.Args = labOrAll(all)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		tidy(cmd)
		labs, err := watchedLabs(cmd, args, *all, since())
		if err != nil {
			return err
		}
		defer func() {
			for i := range labs {
				_ = labs[i].Close() // a client's close does no more than close
			}
		}()
		show := &eventWriter{w: cmd.OutOrStdout(), output: *output}
		show.kept(labs)
		if *follow && show.failure() == nil {
			return show.follow(cmd.Context(), labs)
		}
		return show.failure()
	}
	return cmd
}

// kindsHelp returns a line for each kind of event.
func kindsHelp() string {
	var lines strings.Builder
	for _, k := range event.Kinds {
		fmt.Fprintf(&lines, "  %-17s  %s\n", k.Name, k.Means)
	}
	return lines.String()
}

// labOrAll checks the arguments of a command that takes a lab or --all.
func labOrAll(all *bool) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case *all && (len(args) > 0 || cmd.Flags().Changed("topology")):
			return misuse("%s takes a lab or --all, found both", commandName(cmd))
		case len(args) > 1:
			return misuse("%s takes one lab or --all, found %d labs", commandName(cmd), len(args))
		}
		return nil
	}
}

// A watchedLab is a lab whose events are shown.
type watchedLab struct {
	*lab.Lab
	events []event.Event // that it keeps
	next   uint64        // the number of the event to come
}

// watchLab connects to a lab.
func watchLab(ctx context.Context, name string, since time.Time) (watchedLab, error) {
	l, err := lab.Open(ctx, name)
	if err != nil {
		return watchedLab{}, err
	}
	events, next, err := l.Events(ctx, since)
	if err != nil {
		_ = l.Close() // a client's close does no more than close
	}
	return watchedLab{l, events, next}, err
}

// answerTime bounds the time that each of all labs may take to answer.
const answerTime = time.Second

// watchedLabs are the named lab, or all labs of this user. Of these, one that does
// not answer is left out, and said to be.
func watchedLabs(cmd *cobra.Command, args []string, all bool, since time.Time) ([]watchedLab, error) {
	if !all {
		name, err := labArgument(cmd, args, "one lab or --all")
		if err != nil {
			return nil, err
		}
		l, err := watchLab(cmd.Context(), name, since)
		if err != nil {
			return nil, err
		}
		return []watchedLab{l}, nil
	}
	infos, err := lab.List(cmd.Context())
	if err != nil {
		return nil, err
	}
	var labs []watchedLab
	for _, info := range infos {
		ctx, cancel := context.WithTimeout(cmd.Context(), answerTime)
		l, err := watchLab(ctx, info.Lab, since)
		cancel()
		if err != nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "lab %s is left out: %v\n", info.Lab, err)
			continue
		}
		labs = append(labs, l)
	}
	return labs, nil
}

// parseSince reads an instant, or how long ago it is: since when depends on when it is asked.
func parseSince(text string) (func() time.Time, error) {
	ago, err := time.ParseDuration(text)
	switch {
	case err == nil && ago > 0:
		return func() time.Time { return time.Now().Add(-ago) }, nil
	case err == nil && ago == 0:
		return func() time.Time { return time.Time{} }, nil // since ever
	}
	instant, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return nil, errors.New("expected how long ago, such as 5m, or a time, such as 2026-01-02T15:04:05Z")
	}
	return func() time.Time { return instant }, nil
}

// An eventWriter prints the events of labs.
type eventWriter struct {
	output format

	mu  sync.Mutex // guards what follows: one line at a time
	w   io.Writer
	err error // the first of w
}

func (ew *eventWriter) write(e *event.Event) {
	ew.mu.Lock()
	defer ew.mu.Unlock()
	if ew.err != nil {
		return
	}
	if ew.output == jsonFormat {
		ew.err = written(report.WriteJSONLine(ew.w, e))
	} else {
		ew.err = written(text.WriteEvent(ew.w, e))
	}
}

// failure is the first error of writing, if any.
func (ew *eventWriter) failure() error {
	ew.mu.Lock()
	defer ew.mu.Unlock()
	return ew.err
}

// kept prints what labs keep, in the order of time.
func (ew *eventWriter) kept(labs []watchedLab) {
	var all []event.Event
	for i := range labs {
		all = append(all, labs[i].events...)
	}
	slices.SortStableFunc(all, func(a, b event.Event) int { return a.Time.Compare(b.Time) })
	for i := range all {
		ew.write(&all[i])
	}
}

// follow prints what comes until ctx ends, which is how it is meant to end, or until
// all labs are down, or the output takes no more.
func (ew *eventWriter) follow(ctx context.Context, labs []watchedLab) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for i := range labs {
		l := &labs[i]
		err := l.WatchFrom(ctx, l.next, func(e event.Event) {
			if ew.write(&e); ew.failure() != nil {
				stop()
			}
		})
		if err != nil && ctx.Err() == nil && !isOver(l.Done()) {
			return err
		}
	}
	for i := range labs {
		select {
		case <-labs[i].Done():
		case <-ctx.Done():
		}
	}
	return ew.failure()
}

// isOver reports whether a channel is closed.
func isOver(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
