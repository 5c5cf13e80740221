// Package race says whether the race detector watches this program. With it programs are several times slower, atomic
// operations are functions in C, and pools drop memory at random: some tests have to know.
package race

import (
	"runtime/debug"
	"slices"
)

// Enabled reports whether the program was built with -race.
func Enabled() bool {
	build, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(build.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}
