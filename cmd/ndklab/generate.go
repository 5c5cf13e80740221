package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/topology/generate"
	"github.com/ndklab/ndklab/topology"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func generateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "generate SHAPE [FLAG...] [-w FILE]\n  ndklab generate kubernetes [FILE|-] --hosts N --image IMAGE [-w FILE]",
		Short: "Write a topology file of a usual shape, or a manifest for Kubernetes",
		Long: `Writes a topology file of a usual shape, to be edited. It has comments, what is common
to all in one place, a small workload and checks. It goes to standard output, or to a
file that does not exist yet. "ndklab generate SHAPE --help" explains the shape's flags.

"ndklab generate kubernetes" writes a manifest by which Kubernetes runs the lab of a file
over several hosts.`,
		Example: `  ndklab generate pair --delay 5ms --loss 0.1%
  ndklab generate star --nodes 12 --rate 10gbit -w star.ndklab.yaml
  ndklab generate leaf-spine --spines 4 --leaves 8 --hosts-per-leaf 4
  ndklab generate kubernetes my.ndklab.yaml --hosts 8 --image example/ndklab:1`,
		Args: func(_ *cobra.Command, args []string) error {
			var names []string
			for _, s := range generate.Shapes() {
				names = append(names, s.Name)
			}
			if len(args) == 0 {
				return misuse("generate takes a shape, expected one of %s, or kubernetes", strings.Join(names, ", "))
			}
			return misuse("there is no shape %q, expected one of %s, or kubernetes", args[0], strings.Join(names, ", "))
		},
		RunE: func(*cobra.Command, []string) error { return nil }, // Args has refused whatever led here
	}
	const shapes, others = "Shapes", "Of a topology file"
	cmd.AddGroup(&cobra.Group{ID: shapes, Title: shapes}, &cobra.Group{ID: others, Title: others})
	for _, s := range generate.Shapes() {
		shape := shapeCommand(s)
		shape.GroupID = shapes
		cmd.AddCommand(shape)
	}
	kubernetes := generateKubernetesCommand()
	kubernetes.GroupID = others
	cmd.AddCommand(kubernetes)
	for _, c := range cmd.Commands() {
		c.DisableFlagsInUseLine = true
	}
	return cmd
}

func shapeCommand(shape generate.Shape) *cobra.Command {
	cmd := &cobra.Command{
		Use:   shape.Name + " [FLAG...] [-w FILE]",
		Short: strings.ToUpper(shape.Summary[:1]) + shape.Summary[1:],
		Long:  shape.Text,
		Example: fmt.Sprintf(`  ndklab generate %[1]s
  ndklab generate %[1]s --rate 100mbit --delay 2ms -w my.ndklab.yaml`, shape.Name),
		Args: arguments(0, 0, "flags alone"),
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	values := make(map[string]*int)
	for _, p := range shape.Parameters {
		values[p.Name] = flags.Int(p.Name, p.Default, fmt.Sprintf("%s, %d to %d", p.Usage, p.Minimum, p.Maximum))
	}
	order := generate.Order{Values: make(map[string]int), Link: shape.Link}
	rate := "of the links, such as 10gbit"
	if shape.Fabric == nil { // a port with a shared buffer has one
		rate += "; none for no limit"
	}
	flags.Var(&linkFlag{"rate", &order.Link}, "rate", rate)
	flags.Var(&linkFlag{"delay", &order.Link}, "delay", "of the links, one way, such as 5ms")
	flags.Var(&linkFlag{"loss", &order.Link}, "loss", "of the links, such as 0.1%")
	if shape.Fabric != nil {
		order.Fabric = *shape.Fabric
		flags.Var((*sizeFlag)(&order.Fabric.Buffer), "buffer", "that the ports of a switch or router share, such as 1MiB")
		flags.StringVar(&order.Fabric.Congestion, "congestion", order.Fabric.Congestion, "`CONTROL` of the adapters: "+strings.Join(generate.Congestions, " or "))
		flags.BoolVar(&order.Fabric.PFC, "pfc", order.Fabric.PFC, "ports and adapters pause each other; --pfc=false: full queues drop")
	}
	flags.StringVar(&order.Name, "name", shape.Name, "`NAME` of the lab")
	file := flags.StringP("write", "w", "", "write to this `FILE`, which must not exist yet")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		order.Command = "ndklab generate " + shape.Name
		flags.Visit(func(f *pflag.Flag) {
			if f.Name != "write" {
				separator := " "
				if f.NoOptDefVal != "" { // a value that is optional is not a word of its own
					separator = "="
				}
				order.Command += " --" + f.Name + separator + f.Value.String()
			}
		})
		for name, v := range values {
			order.Values[name] = *v
		}
		text, err := shape.Generate(order)
		if err != nil {
			return misuse("--%v", err)
		}
		var wrong topology.ErrorList
		if _, err := topology.Parse(shape.Name, []byte(text)); errors.As(err, &wrong) {
			return misuse("%s", wrong[0].Message) // the name: what else there is has been checked
		}
		if *file == "" {
			_, err := io.WriteString(cmd.OutOrStdout(), text)
			return written(err)
		}
		return writeNew(*file, text)
	}
	return cmd
}

// writeNew writes a file that does not exist yet.
func writeNew(name, text string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if errors.Is(err, fs.ErrExist) {
		return control.Errorf(control.Usage, "%s exists already, expected a new file", name)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return control.Errorf(control.Usage, "%v", err)
	}
	if err != nil {
		return control.Errorf(control.Unable, "%v", err)
	}
	_, err = f.WriteString(text)
	if err := errors.Join(err, f.Close()); err != nil {
		return control.Errorf(control.Unable, "%v", errors.Join(err, os.Remove(name)))
	}
	return nil
}

// A linkFlag is one key of the links that are generated. It is a pflag.Value.
type linkFlag struct {
	key string
	of  *generate.Link
}

// Set implements pflag.Value.
func (l *linkFlag) Set(text string) error {
	c, err := topology.ParseChange(nil, []string{l.key + "=" + text})
	if err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), l.key+": "))
	}
	switch {
	case c.Rate != nil:
		l.of.Rate = *c.Rate
	case c.Delay != nil:
		l.of.Delay = *c.Delay
	case c.Loss != nil:
		l.of.Loss = c.Loss.Rate
	}
	return nil
}

// Type implements pflag.Value: what --help calls the value.
func (l *linkFlag) Type() string { return l.key }

// String implements pflag.Value.
func (l *linkFlag) String() string {
	switch {
	case l.of == nil: // pflag asks for the zero value
		return ""
	case l.key == "rate" && l.of.Rate > 0:
		return topology.FormatRate(l.of.Rate)
	case l.key == "delay":
		return topology.FormatDuration(l.of.Delay)
	case l.key == "loss":
		return topology.FormatPercent(l.of.Loss)
	}
	return "none"
}

// A sizeFlag is a number of bytes. It is a pflag.Value.
type sizeFlag uint64

// Set implements pflag.Value.
func (s *sizeFlag) Set(text string) error {
	size, err := topology.ParseBufferSize(text)
	*s = sizeFlag(size)
	return err
}

// Type implements pflag.Value: what --help calls the value.
func (s *sizeFlag) Type() string { return "size" }

// String implements pflag.Value.
func (s *sizeFlag) String() string { return topology.FormatSize(uint64(*s)) }
