package labtest

import (
	"context"
	"fmt"
	"time"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
)

// A device is a node's adapter as this process has it.
type device struct {
	miniport *provider.Miniport
	abandon  func()
	adapter  *provider.Adapter
}

func (n *Node) openDevice(ctx context.Context) (*device, error) {
	miniport, abandon, err := n.lab.lab.Nodes.OpenDevice(ctx, n.name)
	if err != nil {
		return nil, err
	}
	adapter, status := miniport.OpenAdapter(provider.OpenParameters{Version: provider.InterfaceVersion})
	if status != provider.StatusSuccess {
		abandon()
		return nil, fmt.Errorf("node %s: open adapter: %w", n.name, status)
	}
	return &device{miniport, abandon, adapter}, nil
}

// closeTime bounds the wait for the end of objects whose close is under way.
const closeTime = 100 * time.Millisecond

// close ends the device. If everything that was made on it is closed, its last packets
// are waited for; else it ends as a process does that is killed, and left is true.
func (d *device) close() (left bool) {
	closed := make(chan struct{})
	d.adapter.BeginClose(func() { close(closed) })
	if left = !clock.Within(closeTime, closed); !left {
		d.miniport.Close()
	}
	d.abandon()
	return left
}

// Adapter opens the node's adapter for this process, until the end of the test. Each call
// opens another instance, as another program in the node would. Objects that the test leaves
// open on it end as at the end of a program that is killed: peers are told.
//
// It may be used from any goroutine, as any adapter. When the node goes down it fails;
// after a start Adapter opens the new one. await.Dial is to be given a local address, which
// PathTo has: without one it would ask the network of this process.
func (n *Node) Adapter() *provider.Adapter {
	t := n.lab.t
	t.Helper()
	ctx, cancel := n.lab.waiting()
	defer cancel()
	d, err := n.openDevice(ctx)
	n.lab.must(err)
	t.Cleanup(func() {
		if d.close() {
			t.Logf("lab %s: node %s: what was open on the adapter at the end was ended as a program's that is killed", n.lab.topo.Name, n.name)
		}
	})
	return d.adapter
}

// Do calls f with the node's adapter, opened for the call, on the calling goroutine, and
// returns f's error. It ends what f leaves open, as Adapter does at the end of the test. It
// may be called from any goroutine.
func (n *Node) Do(ctx context.Context, f func(context.Context, *provider.Adapter) error) error {
	d, err := n.openDevice(ctx)
	if err != nil {
		return fmt.Errorf("lab %s: %w", n.lab.topo.Name, n.lab.because(err))
	}
	defer d.close()
	return f(ctx, d.adapter)
}
