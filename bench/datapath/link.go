package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/topology"
)

// linkRate is the rate that the link is asked for, Gb/s.
const linkRate = 10

// linkTopology is a lab of two nodes and a link that linkem has to carry. Its workload has
// three times as much in flight as fills the link: 10 gbit for a round trip of 2 ms and
// more.
const linkTopology = `name: %s
seed: 1
topology:
  defaults:
    link: {mtu: 4200, rate: 10gbit, delay: 1ms}
  nodes: {a: , b: }
  links:
    - {endpoints: ["a:eth0", "b:eth0"]}
workloads:
  - {name: bulk, from: a, to: b, operation: write, size: 64KiB, depth: 128, warmup: 1s, duration: 2s}
`

// linkCapacity is the payload that 10 gbit carry of WRITEs of 64 KiB, Gb/s. On a wire,
// each packet has Ethernet's header, check sequence, preamble and gap (14 + 4 + 20
// bytes), those of IPv4 and UDP (28), BTH and ICRC (16), and the first of a message
// an RETH (16).
const linkCapacity = linkRate * float64(messageLen) / float64(messageLen+packets*(14+4+20+28+16)+16)

const (
	messageLen = 64 << 10
	packets    = messageLen / frameSize
)

var labs atomic.Int32 // how many were started

// measureLink has a lab write over an emulated link.
func measureLink(ctx context.Context, _ *rig) (_ map[string]float64, err error) {
	text := fmt.Sprintf(linkTopology, fmt.Sprintf("bench-datapath-%d-%d", os.Getpid(), labs.Add(1)))
	topo, err := topology.Parse("link.ndklab.yaml", []byte(text))
	if err != nil {
		return nil, err
	}
	l, err := lab.Start(ctx, topo, lab.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	report, err := l.Run(ctx)
	if err != nil {
		return nil, err
	}
	w := report.Workloads[0]
	if w.Errors > 0 {
		return nil, errors.New(w.Error)
	}
	return map[string]float64{"linkem": w.Gbps, "linkem share": w.Gbps / linkRate, "linkem capacity": linkCapacity}, nil
}
