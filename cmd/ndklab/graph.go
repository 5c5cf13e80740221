package main

import (
	"errors"
	"io"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/fabric/report/graph"
	"github.com/spf13/cobra"
)

func graphCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "graph [FILE|-|LAB] [-f svg|dot|mermaid] [-w FILE]",
		Short: "Draw a topology or a lab that is up",
		Long: `Draws the nodes and links of a topology file or of a lab that is up, with the names
of the interfaces and the impairments of the links. A drawing of a lab shows which nodes
and links are down, and the impairments that links have now. An argument is a file if it
ends in .yaml or .yml, or has a slash.

` + fileHelp + `

There are three forms: svg, a picture for browsers, light or dark as the reader wants;
dot, for graphviz; and mermaid, a diagram for Markdown. The drawing goes to standard
output, or to a file that does not exist yet. A picture of many links says below what
most of them have in common. The mouse over a link or node shows all of it.`,
		Example: `  ndklab graph examples/leaf-spine.ndklab.yaml -w leaf-spine.svg
  ndklab graph pair -f mermaid
  ndklab graph -w lab.svg                  the file in this folder
  ndklab generate ring --nodes 4 | ndklab graph - -f dot
  ndklab graph examples/star.ndklab.yaml -f dot | neato -Tpng -o star.png`,
		Args: arguments(0, 1, "one topology file or lab"),
	}
	form := drawing("svg")
	cmd.Flags().VarP(&form, "format", "f", "how to draw: svg, dot or mermaid")
	file := cmd.Flags().StringP("write", "w", "", "write to this `FILE`, which must not exist yet")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		of, named, err := graphArgument(cmd, args)
		if err != nil {
			return err
		}
		g, err := readGraph(cmd, of, named)
		if err != nil {
			return err
		}
		text := form.of()(g)
		if *file != "" {
			return writeNew(*file, text)
		}
		_, err = io.WriteString(cmd.OutOrStdout(), text)
		return written(err)
	}
	return cmd
}

// graphArgument returns what graph's argument names, and whether that is a file.
func graphArgument(cmd *cobra.Command, args []string) (name string, isFile bool, err error) {
	if len(args) == 0 {
		name, err = fileArgument(cmd, nil, "one topology file or lab")
		return name, true, err
	}
	name = args[0]
	return name, name == standardInput || strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml") || strings.Contains(name, "/"), nil
}

// readGraph is the graph of a topology file or of a lab that is up.
func readGraph(cmd *cobra.Command, of string, isFile bool) (g *graph.Graph, err error) {
	if isFile {
		t, err := readTopology(cmd.Context(), of)
		if err != nil {
			return nil, err
		}
		return graph.Of(t), nil
	}
	tidy(cmd)
	err = withOpen(cmd.Context(), of, func(l *lab.Lab) error {
		i, err := l.Inspect(cmd.Context())
		if err != nil {
			return err
		}
		g = graph.OfLab(i.Lab, i.Nodes, i.Links, i.Externals)
		return nil
	})
	return g, err
}

// A drawing is the form of a graph. It is a pflag.Value.
type drawing string

// of draws a graph. It is nil if the form is none.
func (d drawing) of() func(*graph.Graph) string {
	switch d {
	case "svg":
		return (*graph.Graph).SVG
	case "dot":
		return (*graph.Graph).DOT
	case "mermaid":
		return (*graph.Graph).Mermaid
	}
	return nil
}

func (d *drawing) String() string { return string(*d) }
func (d *drawing) Type() string   { return "svg|dot|mermaid" }
func (d *drawing) Set(value string) error {
	if drawing(value).of() == nil {
		return errors.New("expected svg, dot or mermaid")
	}
	*d = drawing(value)
	return nil
}
