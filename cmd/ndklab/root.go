package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/text"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
)

const rootHelp = `ndklab runs an RDMA cluster on this machine. A YAML file has the nodes and how they
are linked. Each node becomes a network namespace with an emulated RDMA adapter. The
links carry real RoCEv2 packets, with the delay, jitter, loss and rate of the file.

Exit codes: 0 done, and every check passed; 1 a check, a workload or a node's own
command failed; 2 the command line or the topology is wrong, or names what does
not exist; 3 this machine cannot do it ("ndklab doctor" says why); 4 ndklab's own
fault; 130 interrupted. exec returns the command's own status, or 125 if ndklab failed.

Data goes to standard output, progress and errors to standard error. A flag that is
not given is taken from a variable of the environment, such as NDKLAB_UP_SEED for
--seed of up. The --help of a command lists its variables.`

const rootExamples = `  ndklab run examples/pair.ndklab.yaml     build the lab, run its workloads, report, take it down
  ndklab up examples/pair.ndklab.yaml      build the lab and leave it up
  ndklab exec pair/client -- ip address    run a command in a node
  ndklab down pair                         take the lab down
  ndklab doctor                            say what this machine can do`

// rootCommand is the command line. Writers are for what the command itself
// prints; commands in nodes get the process's own.
func rootCommand(stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:                   "ndklab COMMAND",
		Short:                 "RDMA labs on one machine",
		Long:                  rootHelp,
		Example:               rootExamples,
		SilenceErrors:         true,
		SilenceUsage:          true,
		CompletionOptions:     cobra.CompletionOptions{DisableDefaultCmd: true},
		DisableFlagsInUseLine: true,
	}
	needCommand(root, "")
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(flagError)
	root.SetUsageFunc(printUsage)
	cobra.EnableCommandSorting = false
	help := helpCommand()
	for _, group := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"Labs", []*cobra.Command{
			demoCommand(), runCommand(), sweepCommand(), compareCommand(), upCommand(), applyCommand(), downCommand(), lsCommand(), inspectCommand(), waitCommand(), eventsCommand(), logsCommand(), uiCommand(), topCommand(), metricsCommand(),
		}},
		{"Nodes", []*cobra.Command{
			execCommand(), shellCommand(), adapterCommand(), countersCommand(), connectionsCommand(), perfCommand(), rpingCommand(), rcPingpongCommand(),
		}},
		{"A node's life", []*cobra.Command{
			stopCommand(), startCommand(), restartCommand(), killCommand(), pauseCommand(), resumeCommand(),
		}},
		{"Links", []*cobra.Command{linkCommand(), captureCommand()}},
		{"Topology files", []*cobra.Command{initCommand(), validateCommand(), schemaCommand(), generateCommand(), graphCommand()}},
		{"This machine and ndklab", []*cobra.Command{doctorCommand(), gcCommand(), versionCommand(), completionCommand(), help}},
	} {
		root.AddGroup(&cobra.Group{ID: group.title, Title: group.title})
		for _, command := range group.commands {
			command.GroupID = group.title
			command.DisableFlagsInUseLine = true
			root.AddCommand(command)
		}
	}
	root.SetHelpCommand(help) // or cobra adds its own
	heedEnvironment(root)
	completeArguments(root)
	return root
}

// needCommand has a command that does nothing itself refuse arguments that are no commands of
// its own, and print its help without any.
func needCommand(cmd *cobra.Command, of string) {
	cmd.SuggestionsMinimumDistance = 2
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return misuse("there is no command %q%s%s", args[0], of, didYouMean(cmd.SuggestionsFor(args[0])))
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cmd.SetOut(cmd.ErrOrStderr())
		if err := cmd.Help(); err != nil {
			return err
		}
		return exitStatus(exitUsage)
	}
}

// printUsage writes the second half of a command's --help. It is no template, since the linker keeps every method of a program
// that has templates.
func printUsage(cmd *cobra.Command) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage:\n  %s\n", cmd.UseLine())
	if len(cmd.Aliases) > 0 {
		fmt.Fprintf(&b, "  also called %s\n", strings.Join(cmd.Aliases, " and "))
	}
	list := func(title, group string) {
		fmt.Fprintf(&b, "\n%s:\n", title)
		for _, sub := range cmd.Commands() {
			if sub.GroupID == group && sub.IsAvailableCommand() {
				fmt.Fprintf(&b, "  %-*s  %s\n", sub.NamePadding(), sub.Name(), sub.Short)
			}
		}
	}
	for _, group := range cmd.Groups() {
		list(group.Title, group.ID)
	}
	if len(cmd.Groups()) == 0 && cmd.HasAvailableSubCommands() {
		list("Commands", "")
	}
	fmt.Fprintf(&b, "\nExamples:\n%s\n\nFlags:\n%s%s\n", cmd.Example, strings.TrimRight(cmd.LocalFlags().FlagUsages(), "\n"), variablesHelp(cmd))
	_, err := io.WriteString(cmd.OutOrStderr(), b.String())
	return err
}

func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "Explain a command",
		Long:    "Prints what COMMAND --help prints.",
		Example: "  ndklab help run",
		Args:    arguments(0, 2, "one command at most"),
		RunE: func(cmd *cobra.Command, args []string) error {
			command, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				unknown := rest[0]
				return misuse("there is no command %q%s", unknown, didYouMean(command.SuggestionsFor(unknown)))
			}
			command.InitDefaultHelpFlag()
			return command.Help()
		},
	}
}

// misuse is an error in the command line.
func misuse(format string, args ...any) error {
	return fmt.Errorf("%w%w", silent{errCommandLine}, fmt.Errorf(format, args...))
}

// silent is an error that is there to be recognised, not read.
type silent struct{ error }

func (silent) Error() string   { return "" }
func (s silent) Unwrap() error { return s.error }

// flagError says what is wrong with a flag.
func flagError(cmd *cobra.Command, err error) error {
	if invalid := (*pflag.InvalidValueError)(nil); errors.As(err, &invalid) {
		f := invalid.GetFlag()
		var number *strconv.NumError
		what := invalid.Unwrap().Error()
		switch isNumber := errors.As(invalid.Unwrap(), &number); {
		case isNumber && errors.Is(number, strconv.ErrRange):
			what = "out of range"
		case f.Value.Type() == "bool":
			what = "expected true or false"
		case f.Value.Type() == "duration":
			what = "expected a time such as 30s"
		case isNumber:
			what = "expected a whole number"
		}
		return misuse("--%s %q: %s", f.Name, invalid.GetValue(), what)
	}
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return misuse("%v", err)
	}
	flags := &cobra.Command{SuggestionsMinimumDistance: 2}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		flags.AddCommand(&cobra.Command{Use: "--" + f.Name, Run: func(*cobra.Command, []string) {}})
	})
	return misuse("%v%s", err, didYouMean(flags.SuggestionsFor("--"+unknown.GetSpecifiedName())))
}

func didYouMean(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", strings.Join(names, " or "))
}

// commandName returns the name that errors have for a command: "up", "link up".
func commandName(cmd *cobra.Command) string { return strings.TrimPrefix(cmd.CommandPath(), "ndklab ") }

// arguments checks that there are as many arguments as the command takes, which
// what describes. most < 0 is any number.
func arguments(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || most >= 0 && len(args) > most {
			return misuse("%s takes %s, found %d", commandName(cmd), what, len(args))
		}
		return nil
	}
}

// A format is a way of printing data.
type format string

const (
	textFormat format = "text"
	jsonFormat format = "json"
)

func (f *format) String() string { return string(*f) }
func (f *format) Type() string   { return "text|json" }
func (f *format) Set(value string) error {
	if value != string(textFormat) && value != string(jsonFormat) {
		return errors.New("expected text or json")
	}
	*f = format(value)
	return nil
}

// outputFlag adds -o.
func outputFlag(cmd *cobra.Command) *format {
	f := textFormat
	cmd.Flags().VarP(&f, "output", "o", "how to print: text or json")
	return &f
}

// verboseFlag adds -v.
func verboseFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().BoolP("verbose", "v", false, "print all rows, also where they do not fit a screen")
}

// detail says how much to print.
func detail(verbose bool) text.Detail {
	if verbose {
		return text.Full
	}
	return text.Brief
}

// print prints data as the user wants it: as JSON, or by asText.
func (f format) print(w io.Writer, data any, asText func(io.Writer) error) error {
	if f == jsonFormat {
		return written(report.WriteJSON(w, data))
	}
	return written(asText(w))
}

// printText is print where the text is known.
func (f format) printText(w io.Writer, data any, text string) error {
	return f.print(w, data, func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	})
}

// verdict ends a command with the exit code for what has failed unless all has passed.
func verdict(passed bool) error {
	if passed {
		return nil
	}
	return exitStatus(exitFailed)
}

// written is the error of printing data, if any: that the output takes no more is
// the machine's failure. That nobody reads it is known by its own error.
func written(err error) error {
	if err == nil || errors.Is(err, unix.EPIPE) {
		return err
	}
	return control.Errorf(control.Unable, "the output cannot be written: %v", err)
}

// tidy removes what dead labs left. A failure is told, and does not stop the
// command.
func tidy(cmd *cobra.Command) {
	if err := lab.Sweep(); err != nil {
		tell(cmd.ErrOrStderr(), err, exitFault)
	}
}
