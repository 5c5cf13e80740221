package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Every flag of every command can also be given by a variable of the environment: that
// of `ndklab link set --from` is NDKLAB_LINK_SET_FROM. The command is part of the name,
// since flags of one name do different things to different commands. The command line
// takes precedence over variables.

// annotation marks flags that a variable has set, whose name it has.
const annotation = "ndklab/environment"

// variable is the name of a flag's variable.
func variable(cmd *cobra.Command, flag string) string {
	return strings.ToUpper(strings.NewReplacer(" ", "_", "-", "_").Replace(cmd.CommandPath() + " " + flag))
}

// heedEnvironment has all commands below cmd, and it, take flags from the environment
// before they check their arguments, which depends on flags.
func heedEnvironment(cmd *cobra.Command) {
	check := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := takeEnvironment(cmd); err != nil {
			return err
		}
		if check == nil {
			return nil
		}
		return check(cmd, args)
	}
	for _, command := range cmd.Commands() {
		heedEnvironment(command)
	}
}

// takeEnvironment sets flags that the command line has not. An empty variable is none.
func takeEnvironment(cmd *cobra.Command) (err error) {
	eachVariable(cmd, func(f *pflag.Flag, name string) {
		value := os.Getenv(name)
		if f.Changed || value == "" || err != nil {
			return
		}
		if err = cmd.Flags().Set(f.Name, value); err != nil {
			err = fmt.Errorf("%s: %w", name, flagError(cmd, err))
			return
		}
		f.Annotations = map[string][]string{annotation: {name}}
	})
	return err
}

// eachVariable calls f for every flag of a command that has a variable.
func eachVariable(cmd *cobra.Command, f func(flag *pflag.Flag, variable string)) {
	cmd.LocalFlags().VisitAll(func(flag *pflag.Flag) {
		if flag.Name != "help" {
			f(flag, variable(cmd, flag.Name))
		}
	})
}

// fromEnvironment lists the variables that have set flags of the command.
func fromEnvironment(cmd *cobra.Command) []string {
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Annotations[annotation]...) })
	return names
}

// ofEnvironment reports whether a variable has set a flag of the command.
func ofEnvironment(cmd *cobra.Command, flag string) bool {
	f := cmd.Flags().Lookup(flag)
	return f != nil && len(f.Annotations[annotation]) > 0
}

// variablesHelp is the part of --help about the variables of a command.
func variablesHelp(cmd *cobra.Command) string {
	width := 0
	eachVariable(cmd, func(_ *pflag.Flag, name string) { width = max(width, len(name)) })
	if width == 0 {
		return ""
	}
	text := "\n\nVariables of the environment, for flags that are not given:"
	eachVariable(cmd, func(f *pflag.Flag, name string) { text += fmt.Sprintf("\n  %-*s   --%s", width, name, f.Name) })
	return text
}
