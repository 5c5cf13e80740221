package main

import (
	"context"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/ndklab/ndklab/topology"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// commands returns all commands of the program, those of links and shapes included.
func commands(of *cobra.Command) []*cobra.Command {
	var all []*cobra.Command
	for _, c := range of.Commands() {
		all = append(append(all, c), commands(c)...)
	}
	return all
}

// The examples of every command begin with its name, and settings in them are such as
// the command takes.
func TestExamplesInHelp(t *testing.T) {
	quoted := regexp.MustCompile(`'([^']*)'|(\S+)`)
	for _, c := range commands(rootCommand(io.Discard, io.Discard)) {
		if !strings.Contains(c.Example, c.CommandPath()) {
			t.Errorf("%s: its examples do not show it:\n%s", c.CommandPath(), c.Example)
		}
		for line := range strings.Lines(c.Example) {
			_, arguments, ok := strings.Cut(line, "ndklab link set ")
			if !ok {
				continue
			}
			var settings []string
			for _, word := range quoted.FindAllStringSubmatch(arguments, -1)[1:] { // behind the link
				if strings.HasPrefix(word[0], "--") {
					break
				}
				settings = append(settings, word[1]+word[2])
			}
			if _, err := topology.ParseChange(nil, settings); err != nil {
				t.Errorf("%s: %s%v", c.CommandPath(), line, err)
			}
		}
	}
}

// The help of "link set" has every key.
func TestKeysInHelp(t *testing.T) {
	_, err := topology.ParseChange(nil, []string{"?=1"})
	_, keys, ok := strings.Cut(err.Error(), "expected one of ")
	if !ok {
		t.Fatal(err)
	}
	help := linkSetCommand().Long
	for key := range strings.SplitSeq(keys, ", ") {
		if !regexp.MustCompile(`[ '\n]` + key + "=").MatchString(help) {
			t.Errorf("it has no %s", key)
		}
	}
}

// A command that waits for a file ends when it is interrupted.
func TestUnlessInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	never := make(chan struct{})
	defer close(never)
	_, err := unlessInterrupted(ctx, func() (int, error) {
		cancel()
		<-never
		return 0, nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// The word for a flag's value says what the value is: a file, a number, a time.
func TestPlacesInHelp(t *testing.T) {
	lower := regexp.MustCompile(`^(string|file|name|duration|int64)$`)
	for _, c := range commands(rootCommand(io.Discard, io.Discard)) {
		if c.Name() == "rping" || c.Name() == "rc-pingpong" { // which have another's flags
			continue
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if place, _ := pflag.UnquoteUsage(f); lower.MatchString(place) {
				t.Errorf("%s --%s %s", c.CommandPath(), f.Name, place)
			}
		})
	}
}
