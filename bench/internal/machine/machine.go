// Package machine is what programs that measure say of the machine they ran on: what it
// is, and how fast it wakes a processor, which no program on it can do better.
//
// Start reading at Facts and Measure.
package machine

import (
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Facts describe a machine.
type Facts struct {
	Kernel string `json:"kernel"` // such as Linux 6.18
	CPU    string `json:"cpu"`    // the model, "" if the kernel does not say
	Cores  int    `json:"cores"`
	Go     string `json:"go"`   // the toolchain that made this program
	Load   string `json:"load"` // average of the minute before
}

// Look reads the facts.
func Look() Facts {
	f := Facts{Kernel: "unknown", Cores: runtime.NumCPU(), Go: runtime.Version(), CPU: model()}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		f.Kernel = "Linux " + unix.ByteSliceToString(u.Release[:])
	}
	text, _ := os.ReadFile("/proc/loadavg") // without it the facts say less
	f.Load, _, _ = strings.Cut(string(text), " ")
	return f
}

// model returns the name of the first processor's model.
func model() string {
	text, _ := os.ReadFile("/proc/cpuinfo") // without it the facts say less
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
