package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/hazard"
	"github.com/ndklab/ndklab/internal/fabric/report/words"
	"github.com/ndklab/ndklab/topology"
	"github.com/spf13/cobra"
)

// A validation says what validate finds in a file.
type validation struct {
	File      string              `json:"file"`
	Valid     bool                `json:"valid"`
	Lab       string              `json:"lab,omitempty"`
	Dilation  int                 `json:"dilation,omitempty"` // 0: none
	Nodes     int                 `json:"nodes"`
	Links     int                 `json:"links"`
	Workloads int                 `json:"workloads"`
	Errors    []validationProblem `json:"errors"`
	Warnings  []string            `json:"warnings,omitempty"` // of a file that is right
}

// A validationProblem is one thing wrong with a file; Line and Column are 0 if
// it could not be read.
type validationProblem struct {
	File    string `json:"file,omitempty"` // that of the validation or one that it refers to
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"`
}

func validateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "validate [FILE...] [--expand] [-o text|json] [--name NAME] [--node-filter NODES] [--set PATH=VALUE]",
		Short: "Check topology files",
		Long: `Checks topology files and starts nothing. It prints every error on a line of its own:
FILE:LINE:COLUMN, what was found, and what was expected. The exit code is 2 if there is
any. Of shared buffers it also warns of queues that may wait for each other without end,
of too little headroom, and of hosts that a switch cannot pause; that is no error.

--expand prints a file without errors with each node, link and workload by itself.
Ranges, patterns in nodes, free interfaces and the fabric block are replaced by what they
stand for, and variables by their values.

` + fileHelp + `

` + partHelp + `

` + setHelp,
		Example: `  ndklab validate examples/pair.ndklab.yaml
  ndklab generate ring --nodes 4 | ndklab validate -
  ndklab validate -o json labs/*.yaml
  ndklab validate --expand fabric.ndklab.yaml
  ndklab validate --expand examples/pair.ndklab.yaml --set link.delay=10ms`,
	}
	output := outputFlag(cmd)
	flags := newFileFlags(cmd)
	flags.addSet(cmd)
	expand := cmd.Flags().Bool("expand", false, "print a file with all that ranges and the fabric block stand for")
	cmd.RunE = func(cmd *cobra.Command, files []string) error {
		if len(files) == 0 {
			file, err := fileArgument(cmd, nil, "one file or more")
			if err != nil {
				return err
			}
			files = []string{file}
		}
		if *expand {
			if len(files) > 1 || flags.name != "" || flags.nodes != nil || cmd.Flags().Changed("output") {
				return misuse("validate --expand takes one file, --set and nothing else")
			}
			return printExpanded(cmd, files[0], flags.set)
		}
		var result struct {
			Files []validation `json:"files"`
		}
		valid := true
		var told strings.Builder // of the valid files: errors go to standard error
		for _, file := range files {
			v, err := validate(cmd, file, flags)
			if err := cmd.Context().Err(); err != nil {
				return err
			}
			tell(cmd.ErrOrStderr(), err, exitUsage)
			for _, w := range v.Warnings {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s: warning: %s\n", v.File, w)
			}
			if valid = valid && v.Valid; v.Valid {
				fmt.Fprintf(&told, "%s: valid: lab %s, nodes: %d, links: %d, workloads: %d\n", v.File, words.Dilated(v.Lab, v.Dilation), v.Nodes, v.Links, v.Workloads)
			}
			result.Files = append(result.Files, v)
		}
		if err := output.printText(cmd.OutOrStdout(), result, told.String()); err != nil {
			return err
		}
		if !valid {
			return exitStatus(exitUsage)
		}
		return nil
	}
	return cmd
}

// printExpanded prints a file that is right as topology.Expand writes it.
func printExpanded(cmd *cobra.Command, file string, set []topology.Setting) error {
	text, err := readText(cmd.Context(), file)
	if err != nil {
		return err
	}
	if _, err := text.parse(cmd.Context(), topology.Options{Set: set}); err != nil {
		return err
	}
	expanded, err := topology.Expand(topology.Options{Variable: os.LookupEnv, Set: set}, text.name, text.data)
	if err != nil {
		return err
	}
	_, err = cmd.OutOrStdout().Write(expanded)
	return written(err)
}

func validate(cmd *cobra.Command, file string, flags *fileFlags) (validation, error) {
	v := validation{File: file, Errors: []validationProblem{}}
	if file == standardInput {
		v.File = inputName
	}
	t, err := flags.read(cmd, file)
	switch problem := err.(type) {
	case nil:
		v.Valid, v.Lab, v.Dilation, v.Nodes, v.Links, v.Workloads = true, t.Name, t.Dilation, len(t.Nodes), len(t.Links), len(t.Workloads)
		v.Warnings = hazard.Find(t)
	case topology.ErrorList:
		for _, e := range problem {
			v.Errors = append(v.Errors, validationProblem{e.File, e.Line, e.Column, e.Message})
		}
	default:
		v.Errors = append(v.Errors, validationProblem{Message: err.Error()})
	}
	return v, err
}
