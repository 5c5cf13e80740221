package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// An Idle holds what connections take that do nothing.
type Idle struct {
	Connections int     `json:"connections"`
	Resident    float64 `json:"resident_bytes"` // of the process, per connection
	Heap        float64 `json:"heap_bytes"`     // of which the Go heap
	CPU         float64 `json:"cpu"`            // processors, of all together
	Dial        float64 `json:"seconds"`        // until all were connected
}

// idle runs an end whose connections do nothing. It says a line when all are there, and ends
// when the other end has disconnected.
func (d *device) idle(ctx context.Context) error {
	g, err := d.newGroup(1, 0, 1, nil)
	if err != nil {
		return err
	}
	g.receives, g.requests = d.Depth, d.Depth
	resident, heap := memory()
	began := time.Now()
	if d.Role == "server" {
		l, err := d.listen(ctx)
		if err != nil {
			return err
		}
		fmt.Println("ready")
		if err := g.accept(ctx, l, d.QPs); err != nil {
			return err
		}
	} else if err := g.dial(ctx); err != nil {
		return err
	}
	i := Idle{Connections: d.QPs, Dial: time.Since(began).Seconds()}
	// After the pause, the connection manager and the heap no longer hold what it took to
	// connect.
	if err := pause(ctx, d.WarmUp); err != nil {
		return err
	}
	nowResident, nowHeap := memory()
	i.Resident = (nowResident - resident) / float64(d.QPs)
	i.Heap = (nowHeap - heap) / float64(d.QPs)
	before := used()
	if err := pause(ctx, d.Length); err != nil {
		return err
	}
	i.CPU = used().since(before).CPU
	if err := json.NewEncoder(os.Stdout).Encode(i); err != nil {
		return err
	}
	if d.Role == "server" {
		select {
		case <-d.gone:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	// The server has to be ready, too.
	if err := pause(ctx, d.WarmUp); err != nil {
		return err
	}
	return g.disconnect(ctx)
}

// memory returns the memory that this process has, bytes, after the collector has given back what it can.
func memory() (resident, heap float64) {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	text, _ := os.ReadFile("/proc/self/smaps_rollup") // without it there is 0, which nobody takes for a figure
	for line := range strings.Lines(string(text)) {
		var kib float64
		if n, _ := fmt.Sscanf(line, "Anonymous: %f kB", &kib); n == 1 {
			resident = kib * 1024
		}
	}
	return resident, float64(m.HeapAlloc)
}
