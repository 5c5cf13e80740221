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

// A cpuTime is what all processors together have done, in ticks.
type cpuTime struct{ idle, total float64 }

// cpuTimes reads the first line of /proc/stat.
func cpuTimes() cpuTime {
	text, _ := os.ReadFile("/proc/stat") // without it the host counts as saturated
	first, _, _ := bytes.Cut(text, []byte("\n"))
	var t cpuTime
	for i, field := range strings.Fields(string(first)) {
		ticks, err := strconv.ParseFloat(field, 64)
		if err != nil {
			continue // "cpu"
		}
		if i == 4 || i == 5 { // idle, iowait
			t.idle += ticks
		}
		if i <= 8 { // not guests, who are in user already
			t.total += ticks
		}
	}
	return t
}

func idleSince(before cpuTime) float64 {
	now := cpuTimes()
	if now.total <= before.total {
		return 0
	}
	return (now.idle - before.idle) / (now.total - before.total)
}

// A process is one of a lab's.
type process struct {
	pid  int
	part string // ndklab-linkem and the like
}

// processes are those of a lab, which package lab names for ps.
func processes(lab string) ([]process, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	var found []process
	for _, file := range files {
		args, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		arg0, _, _ := bytes.Cut(args, []byte{0})
		part, name, _ := strings.Cut(string(arg0), " ")
		name, _, _ = strings.Cut(name, "/")
		if name != lab || !strings.HasPrefix(part, "ndklab-") {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return nil, err
		}
		found = append(found, process{pid, part})
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("lab %s has no processes", lab)
	}
	return found, nil
}

// cpu is the processor time that a process has used, in all its threads.
func (p process) cpu() (time.Duration, error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.pid))
	if err != nil {
		return 0, err
	}
	total := time.Duration(0)
	for _, task := range tasks {
		text, err := os.ReadFile(task)
		if err != nil {
			continue // the thread has ended
		}
		fields := strings.Fields(string(text))
		if len(fields) == 0 {
			return 0, fmt.Errorf("%s: empty", task)
		}
		ns, err := strconv.ParseInt(fields[0], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", task, err)
		}
		total += time.Duration(ns)
	}
	return total, nil
}

// resident is the most memory that a process has had at once, bytes.
func (p process) resident() (uint64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseUint(strings.Fields(value)[0], 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/%d/status has no VmHWM", p.pid)
}
