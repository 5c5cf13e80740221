package main

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/topology/naming"
	"github.com/spf13/cobra"
)

// target splits LAB or LAB/NODE; node is "" for the former.
func target(arg string) (labName, node string, err error) {
	labName, node, given := strings.Cut(arg, "/")
	if labName == "" || given && node == "" || strings.Contains(node, "/") {
		return "", "", misuse("%q is no lab or node, expected LAB or LAB/NODE", arg)
	}
	return labName, node, nil
}

// targetArgument returns what the first arguments name: LAB or LAB/NODE or, with
// -t, NODE or nothing. Without any it is the lab of the current folder's file.
func targetArgument(cmd *cobra.Command, args []string) (labName, node string, err error) {
	if labName, err = fileLab(cmd); err != nil {
		return "", "", err
	}
	if labName != "" {
		if len(args) == 0 {
			return labName, "", nil
		}
		return target(labName + "/" + args[0])
	}
	arg, err := labArgument(cmd, args, "one lab or node")
	if err != nil {
		return "", "", err
	}
	return target(arg)
}

// withTarget calls do with the lab, and the word for nodes, that targetArgument finds.
func withTarget(cmd *cobra.Command, args []string, do func(l *lab.Lab, word string) error) error {
	tidy(cmd)
	labName, word, err := targetArgument(cmd, args)
	if err != nil {
		return err
	}
	return withOpen(cmd.Context(), labName, func(l *lab.Lab) error { return do(l, word) })
}

// withOpen calls do with the lab of a name.
func withOpen(ctx context.Context, labName string, do func(*lab.Lab) error) error {
	l, err := lab.Open(ctx, labName)
	if err != nil {
		return err
	}
	defer l.Close()
	return do(l)
}

// fileLab is the lab of -t; "" if that is not given.
func fileLab(cmd *cobra.Command) (string, error) {
	f := cmd.Flags().Lookup("topology")
	if f == nil || !f.Changed {
		return "", nil
	}
	t, err := readTopology(cmd.Context(), f.Value.String())
	if err != nil {
		return "", err
	}
	return t.Name, nil
}

// isNode is an error if arg does not have the form of LAB/NODE or, with -t, of NODE.
func isNode(cmd *cobra.Command, arg string) error {
	labName, node, given := strings.Cut(arg, "/")
	expected := "LAB/NODE"
	if cmd.Flags().Changed("topology") {
		labName, node, given = "that of -t", arg, true
		expected = "NODE, since -t gives the lab"
	}
	if !given || labName == "" || node == "" || strings.Contains(node, "/") {
		return misuse("%q is no node, expected %s", arg, expected)
	}
	return nil
}

// withFileLab puts the lab of -t, if that is given, in front of what names something
// in it; "" names the lab.
func withFileLab(cmd *cobra.Command, name string) (string, error) {
	labName, err := fileLab(cmd)
	switch {
	case err != nil || labName == "":
		return name, err
	case name == "":
		return labName, nil
	}
	return labName + "/" + name, nil
}

// topologyFlag adds -t, which stands for the lab in the first argument.
func topologyFlag(cmd *cobra.Command) *string {
	return cmd.Flags().StringP("topology", "t", "", "take the lab of this `FILE`, instead of an argument")
}

// labArguments checks the arguments of a command that takes a lab, unless -t is
// given, and least to most more. One that takes nothing else does without the lab,
// too: then it is that of the current folder's file.
func labArguments(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("topology") {
			return arguments(least, most, what+" without the lab, which -t gives")(cmd, args)
		}
		if most >= 0 {
			most++
		}
		if most == 1 {
			return arguments(0, 1, what)(cmd, args)
		}
		return arguments(least+1, most, what)(cmd, args)
	}
}

// withLab calls do with the lab of the first argument or, if that is given, of -t, and with
// the other arguments.
func withLab(cmd *cobra.Command, args []string, do func(*lab.Lab, []string) error) error {
	tidy(cmd)
	labName, err := fileLab(cmd)
	if err == nil && labName == "" {
		labName, err = labArgument(cmd, args, "one lab")
		args = args[min(1, len(args)):]
	}
	if err != nil {
		return err
	}
	return withOpen(cmd.Context(), labName, func(l *lab.Lab) error { return do(l, args) })
}

// withLinks calls do with the lab and the endpoints that the first argument names,
// LAB/NODE:IFACE or, with -t, NODE:IFACE, and with the other arguments. Of links that a
// range or pattern names each has one endpoint. If all links will do, the endpoint may be
// missing, and is "".
func withLinks(cmd *cobra.Command, args []string, all bool, do func(l *lab.Lab, endpoints, args []string) error) error {
	tidy(cmd)
	labName, err := fileLab(cmd)
	if err == nil && labName == "" && len(args) == 0 {
		labName, err = labArgument(cmd, nil, "one lab or link")
	}
	if err != nil {
		return err
	}
	var first string
	if len(args) > 0 {
		first, args = args[0], args[1:]
	}
	endpoint, expected := first, "NODE:IFACE"
	if labName == "" {
		labName, endpoint, _ = strings.Cut(first, "/")
		expected = "LAB/" + expected
	}
	missing := endpoint == "" && !strings.HasSuffix(first, "/")
	switch {
	case labName == "", missing && !all, !missing && !isEndpoint(endpoint):
		if all {
			return misuse("%q is no lab or link, expected LAB or %s", first, expected)
		}
		return misuse("%q is no link, expected %s", first, expected)
	}
	return withOpen(cmd.Context(), labName, func(l *lab.Lab) error {
		endpoints, err := linksNamed(cmd.Context(), l, endpoint)
		if err != nil {
			return err
		}
		return do(l, endpoints, args)
	})
}

// linksNamed is an endpoint of each link that a word names, in the order of the topology.
func linksNamed(ctx context.Context, l *lab.Lab, word string) ([]string, error) {
	interfaces, err := named(ctx, l, word, "link", func(n lab.Names) []string { return n.Interfaces })
	if err != nil || !naming.IsSeveral(word) {
		return interfaces, err
	}
	names, err := l.Names(ctx)
	if err != nil {
		return nil, err
	}
	chosen := make(map[string]bool, len(interfaces))
	for _, endpoint := range interfaces {
		chosen[endpoint] = true
	}
	var links []string
	for i := 0; i+1 < len(names.Interfaces); i += 2 { // both ends of each link
		if a, b := names.Interfaces[i], names.Interfaces[i+1]; chosen[a] {
			links = append(links, a)
		} else if chosen[b] {
			links = append(links, b)
		}
	}
	return links, nil
}

// named is the names in a lab that a word stands for, of those that of chooses, which are
// called what each is. A plain name stands for itself: what asks the lab for it finds out
// whether it is there.
func named(ctx context.Context, l *lab.Lab, word, what string, of func(lab.Names) []string) ([]string, error) {
	if !naming.IsSeveral(word) {
		return []string{word}, nil
	}
	names, err := l.Names(ctx)
	if err != nil {
		return nil, err
	}
	return among(l.Info().Lab, word, what, of(names))
}

// among returns the names of a lab, out of all, that a word stands for.
func among(labName, word, what string, all []string) ([]string, error) {
	w, err := naming.Parse(word)
	if err != nil {
		return nil, misuse("%w", err)
	}
	found, missing := w.Among(all)
	if missing == "" {
		return found, nil
	}
	hint := ""
	if near, ok := naming.Nearest(missing, all); ok {
		hint = ", expected " + strconv.Quote(near) + "?"
	}
	return nil, misuse("lab %s has no %s %q%s", labName, what, missing, hint)
}

// namedIn is the nodes of a lab that a word stands for. It asks the lab only where it
// must.
func namedIn(ctx context.Context, labName, word string) ([]string, error) {
	if !naming.IsSeveral(word) {
		return []string{word}, nil
	}
	var nodes []string
	err := withOpen(ctx, labName, func(l *lab.Lab) (err error) {
		nodes, err = named(ctx, l, word, "node", machines)
		return err
	})
	return nodes, err
}

// processes and machines are names of nodes: of those that have processes, and of all.
func processes(n lab.Names) []string { return n.Nodes }
func machines(n lab.Names) []string  { return slices.Concat(n.Nodes, n.Switches) }

// changeable returns which names a word chooses among that says which nodes to stop, start or pause: hosts and routers, or
// all nodes if the word fits none of these.
func changeable(word string) func(lab.Names) []string {
	return func(n lab.Names) []string {
		if w, err := naming.Parse(word); err == nil {
			if _, missing := w.Among(n.Nodes); missing != "" {
				return machines(n)
			}
		}
		return processes(n)
	}
}

// isEndpoint reports whether text has the form of an endpoint.
func isEndpoint(text string) bool {
	node, iface, ok := strings.Cut(text, ":")
	return ok && node != "" && iface != "" && !strings.Contains(text, "/")
}
