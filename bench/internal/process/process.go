// Package process finds the processes of labs, and reads from /proc what they use.
package process

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// A Process is one of a lab's.
type Process struct {
	Part string // ndklab-node, ndklab-linkem and the like
	dir  string // below /proc
}

// A List has processes of a lab.
type List []Process

// OfLab returns the processes of a lab, which package lab names for ps. It fails if there are none.
func OfLab(lab string) (found List, err error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		args, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		arg0, _, _ := bytes.Cut(args, []byte{0})
		part, name, _ := strings.Cut(string(arg0), " ")
		name, _, _ = strings.Cut(name, "/")
		if name == lab && strings.HasPrefix(part, "ndklab-") {
			found = append(found, Process{part, filepath.Dir(file)})
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("lab %s has no processes", lab)
	}
	return found, nil
}

// Of returns the processes that are one part of the lab.
func (l List) Of(part string) (found List) {
	for _, p := range l {
		if p.Part == part {
			found = append(found, p)
		}
	}
	return found
}

// CPU returns the processor time that the processes have used together, exactly. A thread that has ended does not
// count.
func (l List) CPU() (total time.Duration, err error) {
	for _, p := range l {
		tasks, err := filepath.Glob(p.dir + "/task/*/schedstat")
		if err != nil {
			return 0, err
		}
		for _, task := range tasks {
			text, err := os.ReadFile(task)
			if err != nil {
				continue // the thread has ended
			}
			first, _, _ := strings.Cut(string(text), " ")
			ns, err := strconv.ParseInt(first, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("%s: %w", task, err)
			}
			total += time.Duration(ns)
		}
	}
	return total, nil
}

// Resident returns the most memory that the process has had at once, KiB.
func (p Process) Resident() (float64, error) { return p.read("/status", "VmHWM:") }

// PSS returns the proportional set size of the process, in which shared memory counts in parts, KiB.
func (p Process) PSS() (float64, error) { return p.read("/smaps_rollup", "Pss:") }

// read returns a value, KiB, of one of the process's files.
func (p Process) read(file, key string) (float64, error) {
	text, err := os.ReadFile(p.dir + file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == key {
			return strconv.ParseFloat(fields[1], 64)
		}
	}
	return 0, fmt.Errorf("%s%s has no %s", p.dir, file, key)
}
