package main

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// Every flag of every command has a variable that no other has, and which the command's help
// names.
func TestVariables(t *testing.T) {
	of := map[string]string{}
	for _, c := range commands(rootCommand(io.Discard, io.Discard)) {
		var help bytes.Buffer
		c.SetOut(&help)
		if err := c.Help(); err != nil {
			t.Fatal(err)
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			name := variable(c, f.Name)
			if f.Name == "help" {
				return
			}
			if !strings.Contains(help.String(), "  "+name+" ") {
				t.Errorf("%s --help does not have %s", c.CommandPath(), name)
			}
			where := c.CommandPath() + " --" + f.Name
			if of[name] != "" {
				t.Errorf("%s is that of %s and of %s", name, of[name], where)
			}
			of[name] = where
		})
	}
	if of["NDKLAB_LINK_SET_FROM"] != "ndklab link set --from" || of["NDKLAB_RC_PINGPONG_RX_DEPTH"] != "ndklab rc-pingpong --rx-depth" {
		t.Errorf("variables %v", of)
	}
}

// A variable is as good as a flag, unless that is given or the variable is empty, for
// every kind of value; what makes no sense names the variable.
func TestTakeEnvironment(t *testing.T) {
	for _, c := range commands(rootCommand(io.Discard, io.Discard)) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name == "help" {
				return
			}
			t.Run(c.CommandPath()+" --"+f.Name, func(t *testing.T) {
				name := variable(c, f.Name)
				if strings.HasPrefix(f.Value.Type(), "string") { // which takes anything
					t.Setenv(name, "x")
				} else {
					t.Setenv(name, "\x01")
					if err := takeEnvironment(c); err == nil || !strings.HasPrefix(err.Error(), name+": ") {
						t.Errorf("nonsense: %v", err)
					}
					f.Changed = false
					t.Setenv(name, sensible(f))
				}
				if err := takeEnvironment(c); err != nil || !f.Changed || !slices.Equal(fromEnvironment(c), []string{name}) {
					t.Errorf("taken: %v, %v, from %v", f.Changed, err, fromEnvironment(c))
				}
				f.Annotations = nil
				t.Setenv(name, "\x01")
				if err := takeEnvironment(c); err != nil || len(fromEnvironment(c)) > 0 { // the flag is given
					t.Errorf("with the flag: %v", err)
				}
				f.Changed = false
				t.Setenv(name, "")
				if err := takeEnvironment(c); err != nil || f.Changed {
					t.Errorf("empty: %v, %v", f.Changed, err)
				}
			})
		})
	}
}

// sensible is a value that a flag takes.
func sensible(f *pflag.Flag) string {
	for _, value := range []string{"text", "svg", "true", "1", "1s", "10.0.0.1", "1gbit", "1%", "1/2", "1GiB", "process", "link.delay=1ms", "10.1.0.0/16"} {
		if f.Value.Set(value) == nil {
			return value
		}
	}
	return ""
}

// Every command of the root is in a group, and every command that prints data prints it as
// JSON, too.
func TestCommandsAreWhole(t *testing.T) {
	root := rootCommand(io.Discard, io.Discard)
	groups := map[string]bool{}
	for _, g := range root.Groups() {
		groups[g.ID] = true
	}
	for _, c := range root.Commands() {
		if !groups[c.GroupID] {
			t.Errorf("%s is in no group", c.Name())
		}
	}
	// These print no data, or data in a format of their own or of the command that they run.
	without := []string{"help", "completion", "exec", "shell", "capture", "generate", "init", "graph", "schema", "rping", "rc-pingpong", "metrics", "ui"}
	for _, c := range commands(root) {
		if c.HasSubCommands() || c.Parent().Name() == "generate" {
			continue
		}
		if has, none := c.Flags().Lookup("output") != nil, c.Parent() == root && slices.Contains(without, c.Name()); has == none {
			t.Errorf("%s: -o: %v", c.CommandPath(), has)
		}
		if c.Long == "" || c.Short == "" || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s does not explain itself: %q", c.CommandPath(), c.Short)
		}
	}
	var names []string
	for _, c := range commands(root) {
		names = append(append(names, c.Name()), c.Aliases...)
	}
	for _, alias := range []string{"deploy", "destroy", "list", "ps"} {
		if c, _, err := root.Find([]string{alias}); err != nil || c == root {
			t.Errorf("no %s among %v", alias, names)
		}
	}
}
