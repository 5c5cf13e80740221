package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// starNodes is the number of nodes that talk all to all.
const starNodes = 8

// measureStar has eight nodes at one bridge, each of which writes to all others at once.
func measureStar(ctx context.Context, _ *rig) (_ map[string]float64, err error) {
	hub, places, err := newStar(starNodes)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closePlaces(append(places, hub)...)) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	nodes := make([]*process, len(places))
	for i, p := range places {
		var peers []string
		for j, q := range places {
			if j != i {
				peers = append(peers, q.address.String())
			}
		}
		nodes[i], err = p.start(ctx, ours("end", "-role", "mesh", "-local", p.address.String(), "-peer", strings.Join(peers, ","),
			"-op", "write", "-size", "64KiB", "-depth", streamDepth, "-warmup", "500ms", "-duration", "2s"))
		if err != nil {
			return nil, err
		}
		defer nodes[i].stop()
	}
	// All are connected before any sends, and send until all have measured.
	for _, n := range nodes {
		if err := n.ready(ctx, ""); err != nil {
			return nil, err
		}
	}
	for _, n := range nodes {
		if _, err := fmt.Fprintln(n.stdin); err != nil {
			return nil, err
		}
	}
	var shares []float64
	total := 0.0
	for _, n := range nodes {
		if err := n.ready(ctx, ""); err != nil {
			return nil, err
		}
		var t Throughput
		_, text, _ := strings.Cut(n.stdout.String(), "\n") // that it was connected
		if err := json.Unmarshal([]byte(text), &t); err != nil {
			return nil, err
		}
		for _, gbps := range t.Flows {
			shares = append(shares, gbps)
		}
		total += t.Gbps
	}
	if want := starNodes * (starNodes - 1); len(shares) != want {
		return nil, fmt.Errorf("%d flows, not %d", len(shares), want)
	}
	return map[string]float64{"all-to-all": total, "all-to-all fairness": jain(shares)}, nil
}
