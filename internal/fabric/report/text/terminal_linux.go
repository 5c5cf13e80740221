package text

import (
	"os"

	"golang.org/x/sys/unix"
)

// isTerminal reports whether a file is a terminal.
func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// columnsOfTerminal returns the number of columns of a terminal; 0 if the file is none, or
// it does not say.
func columnsOfTerminal(f *os.File) int {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}
