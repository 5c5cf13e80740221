//go:build manual

package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra/doc"
)

// With the tag manual the program writes its manual pages into the folder that is its argument, and does nothing else.
// `make dist` runs it so. It is no command, since each process of a lab would initialise the libraries that render pages.
func init() {
	if err := writeManual(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "ndklab: write manual pages:", err)
		os.Exit(exitFault)
	}
	os.Exit(exitOK)
}

// writeManual writes a page for each command. Their date is that of the version.
func writeManual(folder string) error {
	at, err := time.Parse(time.RFC3339, date)
	if err != nil {
		return fmt.Errorf("the date of the version: %w", err)
	}
	root := rootCommand(os.Stdout, os.Stderr)
	root.DisableAutoGenTag = true
	return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Date: &at, Source: "ndklab " + version, Manual: "ndklab"}, folder)
}
