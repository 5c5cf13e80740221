package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// A process is one of a lab's.
type process struct {
	dir  string // below /proc
	part string // ndklab-node and the like
}

type processList []process

// processes are those of a lab, which package lab names for ps.
func processes(lab string) (found processList, err error) {
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
			found = append(found, process{filepath.Dir(file), part})
		}
	}
	return found, nil
}

// of is those that are one part of the lab.
func (l processList) of(part string) (found processList) {
	for _, p := range l {
		if p.part == part {
			found = append(found, p)
		}
	}
	return found
}

// cpu is the processor time that the threads of the process have used, exactly. A
// thread that has ended does not count.
func (p process) cpu() (total time.Duration) {
	tasks, _ := filepath.Glob(p.dir + "/task/*/schedstat") // the pattern is right
	for _, task := range tasks {
		text, err := os.ReadFile(task)
		if err != nil {
			continue // the thread has ended
		}
		ns, _, _ := strings.Cut(string(text), " ")
		n, _ := strconv.ParseInt(ns, 10, 64) // the kernel wrote it
		total += time.Duration(n)
	}
	return total
}

// pss is the process's memory in KiB, where what is shared counts in parts.
func (p process) pss() (float64, error) {
	text, err := os.ReadFile(p.dir + "/smaps_rollup")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		var kib float64
		if n, _ := fmt.Sscanf(line, "Pss: %f kB", &kib); n == 1 {
			return kib, nil
		}
	}
	return 0, fmt.Errorf("%s/smaps_rollup has no Pss", p.dir)
}
