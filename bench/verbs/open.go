package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/node"
)

// The probes of what it takes to have the device open.
const (
	openTime   = "open"        // ms
	openMemory = "open memory" // MiB
)

// opens counts the times that a program opens the device, for the fastest of them.
const opens = 10

// open measures how long a program that opens the device takes longer than one that does nothing, and the anonymous memory
// of one that has it open.
func (r *results) open(ctx context.Context, l *lab.Lab) error {
	lacks := (&probe{program: "ibv_devinfo", debian: "ibverbs-utils"}).lacks()
	if lacks != "" {
		r.Lacks[openTime], r.Lacks[openMemory] = lacks, lacks
		return nil
	}
	nothing, err := fastest(ctx, l, "true")
	if err != nil {
		return err
	}
	with, err := fastest(ctx, l, "ibv_devinfo")
	if err != nil {
		return err
	}
	r.Values[openTime] = append(r.Values[openTime], max(with-nothing, time.Microsecond).Seconds()*1e3)
	// A server that waits for its client, which it does at port 18515, has a queue pair and a few pages of memory.
	const waits = "ibv_rc_pingpong >/dev/null & until grep -q :4853 /proc/net/tcp /proc/net/tcp6; do kill -0 $!; done; sed -n 's/RssAnon:[^0-9]*//p' /proc/$!/status; kill $!"
	text, err := output(ctx, l, "sh", "-ec", waits)
	if err != nil {
		return err
	}
	kib, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(text), " kB"), 64)
	if err != nil {
		return fmt.Errorf("memory of ibv_rc_pingpong: %w", err)
	}
	r.Values[openMemory] = append(r.Values[openMemory], kib/1024)
	return nil
}

// fastest returns the time that a command takes when nothing is in its way.
func fastest(ctx context.Context, l *lab.Lab, command string) (best time.Duration, err error) {
	for i := range opens {
		began := time.Now()
		if _, err := output(ctx, l, command); err != nil {
			return 0, err
		}
		if d := time.Since(began); i == 0 || d < best {
			best = d
		}
	}
	return best, nil
}

// output returns the text that a command prints in a node.
func output(ctx context.Context, l *lab.Lab, command ...string) (text string, err error) {
	reads, writes, err := os.Pipe()
	if err != nil {
		return "", err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return "", errors.Join(err, reads.Close(), writes.Close())
	}
	status, err := l.Nodes.Exec(ctx, "server", node.Command{Args: command, Env: os.Environ()}, null, writes, null)
	err = errors.Join(err, writes.Close(), null.Close())
	buffer := make([]byte, 1<<16) // as much as a pipe has
	n, readErr := reads.Read(buffer)
	if err = errors.Join(err, reads.Close()); err != nil {
		return "", err
	}
	if status != 0 {
		return "", fmt.Errorf("%s: exit status %d", strings.Join(command, " "), status)
	}
	if readErr != nil {
		n = 0 // it has printed nothing
	}
	return string(buffer[:n]), nil
}
