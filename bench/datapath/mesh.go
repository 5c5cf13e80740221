package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
)

// mesh runs an end that writes to all peers, or reads from all, while they do the same. It
// says a line when it is connected, begins when it is given one, prints what it found,
// and goes on until its input ends.
func (d *device) mesh(ctx context.Context) error {
	runtime.GOMAXPROCS(max(1, runtime.GOMAXPROCS(0)/2)) // as a node of a lab has (internal/node, ownProcessors)
	incoming, err := d.receiver(len(d.Peers) * d.QPs)
	if err != nil {
		return err
	}
	outgoing, err := d.newStream(len(d.Peers)*d.QPs, d.Depth, false)
	if err != nil {
		return err
	}
	l, err := d.listen(ctx)
	if err != nil {
		return err
	}
	accepted := make(chan error, 1)
	go func() { accepted <- incoming.accept(ctx, l, len(d.Peers)*d.QPs) }()
	if err := outgoing.dial(ctx); err != nil {
		return err
	}
	if err := <-accepted; err != nil {
		return err
	}
	fmt.Println("connected")
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	t, err := outgoing.measure(ctx)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(t); err != nil {
		return err
	}
	_, _ = in.ReadString('\n') // its end is ours
	return nil
}
