//go:build !linux

package text

import "os"

// isTerminal reports whether a file is a terminal, or another device that takes
// characters.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// columnsOfTerminal likewise does not know.
func columnsOfTerminal(*os.File) int { return 0 }
