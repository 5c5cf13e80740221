package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ndklab/ndklab/bench/internal/process"
	"github.com/ndklab/ndklab/internal/fabric/lab"
)

// messages is the number of messages, of 4 KiB, that each host sends to the next.
const messages = 10

// An Exchange is a ring of hosts in which each connects to the next and sends it
// messages, all at the same time.
type Exchange struct {
	Nodes    int     `json:"nodes"`
	Messages uint64  `json:"messages"` // that were compared, byte for byte, and right
	Errors   uint64  `json:"errors"`
	Error    string  `json:"error,omitempty"` // the first
	Up       float64 `json:"up_seconds"`
	Seconds  float64 `json:"exchange_seconds"` // from the request to the report
	NodePSS  float64 `json:"node_pss_kib"`     // afterwards
}

// exchanged has a ring exchange messages.
func exchanged(ctx context.Context, n int) (e Exchange, err error) {
	const name = "bench-scale-exchange"
	var workloads []string
	for i := range n {
		workloads = append(workloads, fmt.Sprintf("{name: w%d, from: h%d, to: h%d, operation: send, size: 4KiB, count: %d, verify: true}", i+1, i+1, (i+1)%n+1, messages))
	}
	l, up, err := start(ctx, ring(name, plain, n, workloads...))
	if err != nil {
		return e, err
	}
	e = Exchange{Nodes: n, Up: up.Seconds()}
	err = e.run(ctx, l, name)
	return e, errors.Join(err, l.Close())
}

func (e *Exchange) run(ctx context.Context, l *lab.Lab, name string) error {
	began := time.Now()
	report, err := l.Run(ctx)
	if err != nil {
		return err
	}
	e.Seconds = time.Since(began).Seconds()
	for _, w := range report.Workloads {
		e.Errors += w.Errors
		if w.Verified {
			e.Messages += w.Messages
		}
		if e.Error == "" {
			e.Error = w.Error
		}
	}
	all, err := process.OfLab(name)
	if err != nil {
		return err
	}
	for _, p := range all.Of("ndklab-node") {
		kib, err := p.PSS()
		if err != nil {
			return err
		}
		e.NodePSS += kib / float64(e.Nodes)
	}
	return nil
}
