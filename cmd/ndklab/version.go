package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

func versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "version [-o text|json]",
		Short:   "Print the version of ndklab",
		Long:    "Prints the version of ndklab, of the Go toolchain that built it, and the platform; the\ncommit that it is built from, and the commit's date.",
		Example: "  ndklab version\n  ndklab version -o json",
		Args:    arguments(0, 0, "no arguments"),
	}
	output := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		v := struct {
			Version  string `json:"version"`
			Commit   string `json:"commit"`
			Date     string `json:"date"`
			Go       string `json:"go"`
			Platform string `json:"platform"`
		}{version, commit, date, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
		return output.printText(cmd.OutOrStdout(), v, fmt.Sprintf("ndklab %s %s %s\ncommit %s of %s\n", v.Version, v.Go, v.Platform, v.Commit, v.Date))
	}
	return cmd
}
