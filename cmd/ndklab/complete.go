package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/fabric/perftest"
	"github.com/ndklab/ndklab/topology"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The shell completes arguments by a command's usage line: where that has LAB/NODE, names of
// nodes, and so on. The values of a flag are those that its type has, as in text|json, or
// files, if it takes one.

func completionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print a script by which a shell completes command lines",
		Long: `Prints a script by which a shell completes commands, flags and their values, and the
names of labs, nodes, interfaces and topology files. A lab that does not answer at once
is left out. The script for bash needs the package bash-completion.`,
		Example: `  source <(ndklab completion bash)                      in this shell alone; in ~/.bashrc, in all
  ndklab completion zsh > "${fpath[1]}/_ndklab"
  ndklab completion fish > ~/.config/fish/completions/ndklab.fish`,
		Args:      arguments(1, 1, "the name of a shell: bash, zsh or fish"),
		ValidArgs: []string{"bash", "zsh", "fish"},
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		root := cmd.Root()
		generate := map[string]func(io.Writer) error{
			"bash": func(w io.Writer) error { return root.GenBashCompletionV2(w, true) },
			"zsh":  root.GenZshCompletion,
			"fish": func(w io.Writer) error { return root.GenFishCompletion(w, true) },
		}[args[0]]
		if generate == nil {
			return misuse("%q is no shell that is known here, expected bash, zsh or fish", args[0])
		}
		return written(generate(cmd.OutOrStdout()))
	}
	return cmd
}

// completeTime bounds how long somebody waits for completions: labs that do not answer
// by then have no names.
const completeTime = 500 * time.Millisecond

// completeArguments has the arguments and flags of all commands below cmd completed.
func completeArguments(cmd *cobra.Command) {
	for _, command := range cmd.Commands() {
		completeArguments(command)
	}
	if cmd.ValidArgs == nil && cmd.ValidArgsFunction == nil && !cmd.HasSubCommands() {
		words := positional(cmd.Use)
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return completeArgument(cmd, words, args, begun)
		}
	}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if complete := flagValues(f); complete != nil {
			// It fails for a flag that is not the command's.
			_ = cmd.RegisterFlagCompletionFunc(f.Name, complete)
		}
	})
}

// positional is the arguments in a usage line, by the words that it has for them. Of
// several lines, those behind the first begin with ndklab, and add what they have more.
func positional(use string) []string {
	flags := regexp.MustCompile(`\[--?[a-zA-Z][^\]]*\]|--?[a-zA-Z][a-z-]*( [A-Z]+\b)?|\|--?[a-z]+`)
	var all []string
	for line := range strings.Lines(use) {
		words := strings.Fields(strings.TrimPrefix(flags.ReplaceAllString(strings.TrimSpace(line), ""), "ndklab "))[1:]
		all = append(all, slices.DeleteFunc(words, func(word string) bool { return strings.Trim(word, "[]-|.") == "" })...)
	}
	return all
}

// completeArgument returns what the next argument may be, behind args.
func completeArgument(cmd *cobra.Command, words, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	c, cancel := newCompleter(cmd, args, begun)
	defer cancel()
	if c.file != "" && len(words) > 0 && (strings.Trim(words[0], "[]") == "LAB" || strings.HasPrefix(words[0], "LAB|")) { // which the file stands for
		words = words[1:]
	}
	word := ""
	switch last := len(words) - 1; {
	case len(args) <= last:
		word = words[len(args)]
	case last >= 0 && strings.Contains(words[last], "..."):
		word = words[last]
	}
	found, directive := c.argument(word)
	return slices.DeleteFunc(found, func(name string) bool { return !strings.HasPrefix(name, begun) }), directive
}

// A completer finds what an argument may be.
type completer struct {
	ctx   context.Context
	begun string // what there is of it
	lab   string // that an argument before has
	file  string // of -t
	root  *cobra.Command
}

// newCompleter makes what completes begun behind args, until it takes too long.
func newCompleter(cmd *cobra.Command, args []string, begun string) (*completer, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completeTime)
	c := &completer{ctx: ctx, begun: begun, root: cmd.Root()}
	if f := cmd.Flags().Lookup("topology"); f != nil {
		c.file = f.Value.String()
	}
	if len(args) > 0 {
		c.lab, _, _ = strings.Cut(args[0], "/")
	}
	return c, cancel
}

// argument returns what may stand for a word of a usage line.
func (c *completer) argument(word string) ([]string, cobra.ShellCompDirective) {
	none := cobra.ShellCompDirectiveNoFileComp
	switch {
	case strings.Contains(word, "/NODE:IFACE"):
		return c.inLab(!strings.Contains(word, "[/"), func(n lab.Names) []string { return n.Interfaces })
	case strings.Contains(word, "/NODE..."): // nodes that are stopped, started or paused, as switches are, too
		return c.inLab(true, machines)
	case strings.Contains(word, "/NODE"):
		return c.inLab(!strings.Contains(word, "[/"), func(n lab.Names) []string { return n.Nodes })
	case strings.Contains(word, "FILE"):
		found, directive := c.files()
		if strings.Contains(word, "LAB") {
			found = append(labs(), found...)
		}
		return found, directive
	case strings.Contains(word, "LAB"):
		return labs(), none
	case strings.HasPrefix(word, "KEY="):
		var keys []string
		for _, key := range topology.ChangeKeys() {
			keys = append(keys, key+"=")
		}
		return keys, none | cobra.ShellCompDirectiveNoSpace
	case strings.HasPrefix(word, "SET"):
		return c.set(), none | cobra.ShellCompDirectiveNoSpace
	case word == "TEST":
		return perftest.Names(), none
	case word == "[COMMAND]": // of help; "COMMAND" is a program in a node
		var commands []string
		for _, command := range c.root.Commands() {
			if command.IsAvailableCommand() || command.Name() == "help" {
				commands = append(commands, command.Name())
			}
		}
		return commands, none
	case strings.Contains(word, "COMMAND"), strings.Contains(word, "ARGUMENT"):
		return nil, cobra.ShellCompDirectiveDefault
	}
	return nil, none
}

// labs are the labs that are up.
func labs() []string {
	// Without any, there is nothing to complete.
	names, _ := lab.Up()
	return names
}

// inLab completes LAB/NAME, of the names that of chooses, and LAB alone unless a name
// is needed. With -t it is NAME.
func (c *completer) inLab(needed bool, of func(lab.Names) []string) ([]string, cobra.ShellCompDirective) {
	none := cobra.ShellCompDirectiveNoFileComp
	if c.file != "" {
		return of(c.names("")), none
	}
	labName, _, within := strings.Cut(c.begun, "/")
	up := labs()
	if !within && !slices.Contains(up, labName) {
		if needed {
			for i := range up {
				up[i] += "/"
			}
		}
		return up, none | cobra.ShellCompDirectiveNoSpace
	}
	var found []string
	if !needed && !within {
		found = up
	}
	for _, name := range of(c.names(labName)) {
		found = append(found, labName+"/"+name)
	}
	return found, none
}

// names returns what is in a lab, or in the file of -t. It is nothing if that cannot be
// found out.
func (c *completer) names(labName string) (names lab.Names) {
	switch {
	case c.file != "":
		if t, err := readTopology(c.ctx, c.file); err == nil {
			names = lab.NamesOf(t)
		}
	case labName != "":
		// An error is a lab without names.
		_ = withOpen(c.ctx, labName, func(l *lab.Lab) (err error) {
			names, err = l.Names(c.ctx)
			return err
		})
	}
	return names
}

// set completes NODE,NODE...
func (c *completer) set() []string {
	before := c.begun[:strings.LastIndex(c.begun, ",")+1]
	names := c.names(c.lab)
	var found []string
	for _, name := range append(names.Nodes, names.Switches...) {
		if !slices.Contains(strings.Split(before, ","), name) {
			found = append(found, before+name)
		}
	}
	return found
}

// files completes topology files, in the folder that was begun, and folders.
func (c *completer) files() ([]string, cobra.ShellCompDirective) {
	dir, _ := filepath.Split(c.begun)
	folder := dir
	if dir == "" {
		folder = "."
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var found []string
	directive := cobra.ShellCompDirectiveNoFileComp
	for _, e := range entries {
		info, err := os.Stat(filepath.Join(folder, e.Name())) // of what a link leads to
		switch {
		case err != nil || !strings.HasPrefix(dir+e.Name(), c.begun), strings.HasPrefix(e.Name(), "."):
		case info.IsDir():
			found = append(found, dir+e.Name()+"/")
			directive |= cobra.ShellCompDirectiveNoSpace
		case strings.HasSuffix(e.Name(), ".ndklab.yaml"):
			found = append(found, dir+e.Name())
		}
	}
	return found, directive
}

// flagValues returns what completes the values of a flag; nil: files.
func flagValues(f *pflag.Flag) cobra.CompletionFunc {
	takes, _ := pflag.UnquoteUsage(f)
	switch {
	case f.Name == "topology":
		return func(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
			return (&completer{ctx: cmd.Context(), begun: begun}).files()
		}
	case takes == "NODE":
		return ofLab(func(n lab.Names) []string { return n.Nodes })
	case f.Name == "for":
		return ofLab(func(n lab.Names) []string {
			conditions := []string{lab.Ready, lab.Down}
			for _, w := range n.Workloads {
				conditions = append(conditions, "workload="+w)
			}
			return conditions
		})
	case takes == "PATTERN":
		return cobra.FixedCompletions([]string{"ring", "all-to-all", "incast", "broadcast", "permutation"}, cobra.ShellCompDirectiveNoFileComp)
	case takes == "SIGNAL":
		return cobra.FixedCompletions([]string{"KILL", "TERM", "INT", "HUP", "QUIT", "STOP", "CONT", "USR1", "USR2"}, cobra.ShellCompDirectiveNoFileComp)
	case takes == "FILE", takes == "PATH", takes == "DIR":
		return nil
	case strings.HasPrefix(takes, "PATH="):
		return completeSetting
	case strings.Contains(takes, "|"):
		return cobra.FixedCompletions(strings.Split(takes, "|"), cobra.ShellCompDirectiveNoFileComp)
	}
	return cobra.NoFileCompletions
}

// completeSetting completes the path of a setting: what one may begin with and the names of the file's
// links, nodes and workloads, and behind link. or link[...]. the keys of a link.
func completeSetting(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	directive := cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	found := []string{"link.", "node.", "workload.", "defaults.", "fabric.", "seed="}
	if at := strings.LastIndexByte(begun, '.'); at >= 0 {
		found = nil
		if strings.HasPrefix(begun, "link") {
			for _, key := range topology.ChangeKeys() {
				found = append(found, begun[:at+1]+key+"=")
			}
		}
	} else if file, err := fileArgument(cmd, args, "one file"); err == nil {
		if t, err := readTopology(cmd.Context(), file); err == nil { // else it has no names
			for _, l := range t.Links {
				found = append(found, "link["+l.Endpoints[0].Node+"-"+l.Endpoints[1].Node+"].")
			}
			for _, n := range t.Nodes {
				found = append(found, "node["+n.Name+"].")
			}
			for i := range t.Workloads {
				found = append(found, "workload["+t.Workloads[i].Name+"].")
			}
		}
	}
	return slices.DeleteFunc(found, func(path string) bool { return !strings.HasPrefix(path, begun) }), directive
}

// ofLab completes what of chooses of the lab in the first argument or the file of -t.
func ofLab(of func(lab.Names) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		c, cancel := newCompleter(cmd, args, begun)
		defer cancel()
		return of(c.names(c.lab)), cobra.ShellCompDirectiveNoFileComp
	}
}
