package main

import (
	"github.com/ndklab/ndklab/topology"
	"github.com/spf13/cobra"
)

func schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of topology files, for editors",
		Long: `Prints the JSON Schema (draft 2020-12) of topology files. Editors complete and explain
keys by it, and mark most of what "ndklab validate" refuses. What depends on other parts
of the file, such as names, only validate checks.

With the YAML language server, a file's first line says where the schema is:

  # yaml-language-server: $schema=ndklab.schema.json`,
		Example: `  ndklab schema >ndklab.schema.json`,
		Args:    arguments(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(topology.JSONSchema())
			return written(err)
		},
	}
}
