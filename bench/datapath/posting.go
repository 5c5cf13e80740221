package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/ndklab/ndklab/provider"
)

// A Posting holds the time to post a request to a queue that has others in it.
type Posting struct {
	Median  float64 `json:"median_ns"`
	Samples int     `json:"samples"`
}

// postBatch is the number of requests that are timed at once.
const postBatch = 64

// posting measures the time to post a request, deferred, when Depth are in the queue
// already. A server is like one of throughput.
func (d *device) posting(ctx context.Context) error {
	if d.Role == "server" {
		return d.serveThroughput(ctx)
	}
	completed := make(chan int, 1)
	var left int
	var failure error
	var results [postBatch]provider.ResultEx
	var g *group
	g, err := d.newGroup(1, 0, d.Depth+postBatch, func(_ any, status provider.Status) {
		if status != provider.StatusSuccess {
			failure = fmt.Errorf("completion queue: %w", status)
		}
		for n := -1; n != 0; {
			n = g.cq.ResultsEx(results[:])
			for _, r := range results[:n] {
				if r.Status != provider.StatusSuccess {
					failure = fmt.Errorf("request failed: %w", r.Status)
				}
			}
			left -= n
		}
		if left == 0 || failure != nil {
			completed <- 0
			return
		}
		g.cq.Arm(provider.NotifyAny)
	})
	if err != nil {
		return err
	}
	if err := g.dial(ctx); err != nil {
		return err
	}
	f := g.flows[0]
	post := func(n int, flags provider.OpFlags) provider.Status {
		for range n {
			if status := f.qp.Write(f, f.sgl, f.sgl[0].VirtualAddress, f.token, flags); status != provider.StatusSuccess {
				return status
			}
		}
		return provider.StatusSuccess
	}
	var took []time.Duration
	begin := time.Now()
	for len(took) == 0 || time.Since(begin) < d.WarmUp+d.Length { // one round at least, however long it takes
		left = d.Depth + postBatch
		status := post(d.Depth-1, provider.OpDefer)
		before := time.Now()
		if status == provider.StatusSuccess {
			status = post(postBatch, provider.OpDefer)
		}
		if time.Since(begin) > d.WarmUp {
			took = append(took, time.Since(before))
		}
		if status == provider.StatusSuccess {
			status = post(1, 0)
		}
		if status != provider.StatusSuccess {
			return fmt.Errorf("post: %w", status)
		}
		g.cq.Arm(provider.NotifyAny)
		select {
		case <-completed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if failure != nil {
			return failure
		}
	}
	slices.Sort(took)
	if err := g.disconnect(ctx); err != nil {
		return err
	}
	median := float64(took[len(took)/2].Nanoseconds()) / postBatch
	return json.NewEncoder(os.Stdout).Encode(Posting{Median: median, Samples: len(took)})
}
