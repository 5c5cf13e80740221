package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/ndklab/ndklab/examples"
	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/topology"
	"github.com/spf13/cobra"
)

// schemaFile is the name of the schema beside topology files.
const schemaFile = "ndklab.schema.json"

// defaultFile is the topology file that `ndklab init` writes unless another is named.
const defaultFile = "lab.ndklab.yaml"

func initCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "init [FILE]",
		Short: "Write a commented topology file to begin with",
		Long: `Writes a topology file that a lab runs by as it is, with comments that say what each part
does: two nodes, a bad link, workloads and checks. FILE is ` + defaultFile + ` unless given, and must not
exist yet. The schema of topology files goes beside it, as ` + schemaFile + `, in place of one
that is there: editors find it by the first line of FILE. "ndklab generate" writes files
of other shapes.`,
		Example: "  ndklab init\n  ndklab init labs/first.ndklab.yaml && ndklab run labs/first.ndklab.yaml",
		Args:    arguments(0, 1, "one file at most"),
		RunE: func(cmd *cobra.Command, args []string) error {
			file := defaultFile
			if len(args) > 0 {
				file = args[0]
			}
			text, err := firstFile(file)
			if err != nil {
				return err
			}
			if err := writeNew(file, text); err != nil {
				return err
			}
			schema := filepath.Join(filepath.Dir(file), schemaFile)
			if err := os.WriteFile(schema, topology.JSONSchema(), 0o666); err != nil {
				return errors.Join(control.Errorf(control.Unable, "the schema: %v", err), os.Remove(file))
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "wrote %s, and %s for editors: `ndklab run %s` runs the lab\n", file, schema, file)
			return nil
		},
	}
}

// firstFile returns the text of a file to begin with. The lab is called as the file is.
func firstFile(file string) (string, error) {
	name, ok := strings.CutSuffix(filepath.Base(file), ".ndklab.yaml")
	if !ok {
		return "", misuse("%s is no name of a topology file, expected one that ends in .ndklab.yaml, such as %s", file, defaultFile)
	}
	if err := topology.CheckName(name); err != nil {
		return "", misuse("%s: %q is no lab name: %v", file, name, err)
	}
	text := strings.NewReplacer("examples/pair.ndklab.yaml", file, "name: pair", "name: "+name, `"ndklab down pair"`, `"ndklab down `+name+`"`).Replace(examples.Pair)
	return "# yaml-language-server: $schema=" + schemaFile + "\n" + text, nil
}
