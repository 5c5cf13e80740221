package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/topology/naming"
	"github.com/ndklab/ndklab/topology"
	"github.com/spf13/cobra"
)

// This file finds the topology file that a command is about, and the part of it.

// filePattern matches the files that are found without being named.
const filePattern = "*.ndklab.yaml"

// standardInput is the argument that stands for a topology on standard input, and
// inputName what errors there call it.
const (
	standardInput = "-"
	inputName     = "<stdin>"
)

// fileHelp is the part of the help of commands that take a topology file.
const fileHelp = `Without FILE the command takes the one *.ndklab.yaml in the current folder. FILE - is
standard input. Variables in the file, such as ${DELAY:=1ms}, are the environment's.`

// partHelp describes fileFlags in the help of the commands that have them.
const partHelp = `--name gives the lab another name than the file does. --node-filter takes only the
nodes that it names, by names, ranges or patterns such as leaf-*, and the links between
them, with the addresses that they have in the whole lab. Workloads, checks, timeline
entries and captures that need other nodes are left out, which the command says.`

// dilationHelp describes --dilation in the help of the commands that have it.
const dilationHelp = `--dilation N, or ` + "`dilation: N`" + ` in the file, makes rates N times lower, and delays and timers N
times longer, so that a fabric that is too fast for this machine runs as it would. Times
and rates of reports are the fabric's. A simulation ignores it.`

// errNoFile is that the current folder has no topology file.
var errNoFile = errors.New("this folder has no " + filePattern)

// findFile is the topology file of the current folder.
func findFile() (string, error) {
	found, err := filepath.Glob(filePattern)
	switch {
	case err != nil:
		return "", err
	case len(found) == 0:
		return "", errNoFile
	case len(found) > 1:
		return "", misuse("this folder has several topology files, expected one of %s to be named", strings.Join(found, ", "))
	}
	return found[0], nil
}

// fileArgument returns the file that the arguments of a command name, or that of the
// current folder. The parameter what says in errors what the command takes.
func fileArgument(cmd *cobra.Command, args []string, what string) (string, error) {
	if len(args) > 0 {
		return args[0], nil
	}
	file, err := findFile()
	if errors.Is(err, errNoFile) {
		return "", misuse("%s takes %s, and %w", commandName(cmd), what, err)
	}
	return file, err
}

// labArgument returns the lab that the argument of a command names, or that of -t or of
// the file of the current folder. The parameter what says in errors what the command
// takes.
func labArgument(cmd *cobra.Command, args []string, what string) (string, error) {
	name, err := fileLab(cmd)
	switch {
	case err != nil:
		return "", err
	case name != "" && len(args) > 0:
		return "", misuse("%s takes a lab or -t, found both", commandName(cmd))
	case name != "":
		return name, nil
	case len(args) > 0:
		return args[0], nil
	}
	file, err := fileArgument(cmd, nil, what)
	if err != nil {
		return "", err
	}
	t, err := readTopology(cmd.Context(), file)
	if err != nil {
		return "", err
	}
	return t.Name, nil
}

// fileFlags has --name, --node-filter and, of commands that make labs, --label, --dilation and --hosts.
type fileFlags struct {
	name     string
	nodes    []string
	labels   *labelFlag // nil: the command has none
	set      []topology.Setting
	dilation dilationFlag // 0: the file says it, or the command has none
	hosts    hostsFlag    // none: the lab is on this machine, or the command has none
}

// A dilationFlag is the flag --dilation.
type dilationFlag int

// addDilation adds --dilation.
func (f *fileFlags) addDilation(cmd *cobra.Command) {
	cmd.Flags().Var(&f.dilation, "dilation", "slow the lab down by this factor, instead of the file's")
}

// Set implements pflag.Value.
func (d *dilationFlag) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > topology.MaxDilation {
		return fmt.Errorf("expected a whole number from 1 to %d", topology.MaxDilation)
	}
	*d = dilationFlag(n)
	return nil
}

// Type implements pflag.Value: what --help calls the value.
func (d *dilationFlag) Type() string { return "N" }

// String implements pflag.Value: the default, which is none.
func (d *dilationFlag) String() string { return "" }

func newFileFlags(cmd *cobra.Command) *fileFlags {
	f := new(fileFlags)
	f.addName(cmd)
	cmd.Flags().StringSliceVar(&f.nodes, "node-filter", nil, "only these `NODES` and the links between them: names or patterns, with commas")
	return f
}

// addName adds --name alone.
func (f *fileFlags) addName(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.name, "name", "", "the lab's `NAME`, instead of the file's")
}

// setHelp is the part of the help of commands that have --set.
const setHelp = `--set puts a value into places of the file: link.delay=5ms, workload[bulk].size=1MiB,
link[a-b].loss=1%, node[s].buffer.size=4MiB, defaults.adapter.congestion=dcqcn, seed=7.
The path is the file's keys with dots. A name, range or pattern in brackets chooses of a
list or a map; without it all are set. link, node, workload, defaults and fabric stand for
topology.links, topology.nodes, workloads, topology.defaults and topology.fabric.`

// addSet adds --set.
func (f *fileFlags) addSet(cmd *cobra.Command) {
	cmd.Flags().Var(&settingsFlag{&f.set}, "set", "put a value into places of the file, as in link.delay=5ms; may be given again")
}

// A settingsFlag is --set. It is a pflag.Value.
type settingsFlag struct{ all *[]topology.Setting }

// Set implements pflag.Value.
func (f *settingsFlag) Set(text string) error {
	s, err := topology.ParseSetting(text)
	if err == nil {
		*f.all = append(*f.all, s)
	}
	return err
}

// Type implements pflag.Value: what --help calls the value.
func (f *settingsFlag) Type() string { return "PATH=VALUE" }

// String implements pflag.Value: the default, which is none.
func (f *settingsFlag) String() string { return "" }

// given reports whether there are any.
func (f *fileFlags) given() bool { return f.name != "" || f.nodes != nil || f.set != nil }

// read reads a topology file as the flags say, and tells what they leave out.
func (f *fileFlags) read(cmd *cobra.Command, file string) (*topology.Topology, error) {
	text, err := readText(cmd.Context(), file)
	if err != nil {
		return nil, err
	}
	return f.parse(cmd, text, nil)
}

// parse is read of a text, for a lab that is up; nil if it is not.
func (f *fileFlags) parse(cmd *cobra.Command, text *topologyText, running *topology.Topology) (*topology.Topology, error) {
	for flag, empty := range map[string]bool{"name": f.name == "", "node-filter": len(f.nodes) == 0} {
		if empty && cmd.Flags().Changed(flag) {
			return nil, misuse("--%s needs a name", flag)
		}
	}
	if f.name != "" {
		if err := topology.CheckName(f.name); err != nil {
			return nil, misuse("--name: %w", err)
		}
	}
	t, err := text.parse(cmd.Context(), topology.Options{
		Name: f.name, Nodes: f.filter(), Set: f.set, Dilation: int(f.dilation), Running: running,
		LeftOut: func(what string) { fmt.Fprintln(cmd.ErrOrStderr(), "left out:", what) },
	})
	if err != nil {
		return nil, err
	}
	return t, f.label(t)
}

// label gives a lab that is to be made the labels of --label.
func (f *fileFlags) label(t *topology.Topology) error {
	if f.labels == nil {
		return nil
	}
	labels, err := f.labels.read()
	if err == nil && labels != nil {
		t.AddLabels(labels)
	}
	return err
}

// filter is the words of --node-filter, of which commas in ranges are a part.
func (f *fileFlags) filter() []string {
	if f.nodes == nil {
		return nil
	}
	return naming.Split(strings.Join(f.nodes, ","))
}

// makeRoom takes down the lab of that name, if it is up.
func makeRoom(ctx context.Context, cmd *cobra.Command, name string) error {
	l, err := lab.Open(ctx, name)
	if control.CodeOf(err) == control.Usage {
		return nil // it is not up
	}
	if err != nil {
		return err
	}
	if err := l.Down(ctx); err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "lab %s is down\n", name)
	return nil
}
