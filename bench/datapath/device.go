package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/await"
	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/provider/udp"
)

const (
	// port is the port that servers listen on.
	port = 18515
	// frameSize is the path MTU, bytes: a link of MTU 4200 carries it.
	frameSize = 4096
	// maxRegion bounds the memory that messages are sent from or written to, bytes.
	// Queue pairs have a place of their own in it as far as it goes. It fits into
	// processors' caches: with more queue pairs, what these cost is measured, and not
	// the machine's memory.
	maxRegion = 1 << 20
	// dialers bounds the number of connections that are made at a time.
	dialers = 32
	// dialPatience bounds the wait for a server.
	dialPatience = 10 * time.Second
)

// A device is an adapter on the sockets of this network namespace, and what this
// program made of it.
type device struct {
	*endConfig
	adapter *provider.Adapter
	pd      *provider.PD
	region  *await.Memory

	// gone is closed when a peer has disconnected.
	gone     chan struct{}
	goneOnce sync.Once
}

// A group is connections with a completion queue in common.
type group struct {
	*device
	cq                 *provider.CQ
	receives, requests int // that each queue pair has room for
	// prepare is called with each flow before it is connected; nil: not.
	prepare func(*flow) error

	mu    sync.Mutex // guards flows while connections are made
	flows []*flow
}

// A flow is one connection.
type flow struct {
	qp        *provider.QP
	connector *provider.Connector
	peer      netip.Addr
	sgl       []provider.SGE
	token     uint32        // of the peer's region
	owed      int           // requests to be posted
	done      atomic.Uint64 // requests that have completed
}

// openDevice starts the device, as any program would, with the limits that
// the provider has by default.
func openDevice(ctx context.Context, c *endConfig) (*device, error) {
	carrier, err := udp.Open(udp.Config{Addresses: []netip.Addr{c.Local}})
	if err != nil {
		return nil, err
	}
	configuration := provider.DefaultConfiguration()
	configuration.NetworkDirectRoCEFrameSize = frameSize
	m, err := provider.NewMiniport(provider.Config{
		Carrier: carrier, Clock: clock.Real(), Rand: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())),
		Info: provider.DefaultAdapterInfo(), Capabilities: provider.DefaultCapabilities(), Configuration: &configuration,
	})
	if err != nil {
		return nil, errors.Join(err, carrier.Close())
	}
	d := &device{endConfig: c, gone: make(chan struct{})}
	// Nothing from here on is closed: it ends with the process.
	var status provider.Status
	if d.adapter, status = m.OpenAdapter(provider.OpenParameters{Version: provider.InterfaceVersion}); status != provider.StatusSuccess {
		return nil, fmt.Errorf("open adapter: %w", status)
	}
	if d.pd, err = await.Create(ctx, d.adapter.CreatePD); err != nil {
		return nil, err
	}
	size := max(1, min(c.QPs*max(1, len(c.Peers))*c.Size, max(maxRegion, c.Size)))
	if d.region, err = await.Register(ctx, d.pd, size, provider.MRAllowRemoteRead|provider.MRAllowRemoteWrite); err != nil {
		return nil, err
	}
	return d, nil
}

// newGroup makes the completion queue for that many connections.
func (d *device) newGroup(connections, receives, requests int, notification provider.CQNotification) (*group, error) {
	depth := connections * (receives + requests)
	cq, status := d.adapter.CreateCQ(uint32(depth), notification, nil, nil, nil, nil)
	if status != provider.StatusSuccess {
		return nil, fmt.Errorf("create CQ of %d entries: %w", depth, status)
	}
	return &group{device: d, cq: cq, receives: receives, requests: requests}, nil
}

// newFlow makes a queue pair.
func (g *group) newFlow(peer netip.Addr) (*flow, error) {
	qp, status := g.pd.CreateQP(g.cq, g.cq, nil, uint32(g.receives), uint32(g.requests), 1, 1, 0, nil, nil)
	if status != provider.StatusSuccess {
		return nil, fmt.Errorf("create QP: %w", status)
	}
	f := &flow{qp: qp, peer: peer}
	g.mu.Lock()
	places := max(1, len(g.region.Bytes)/max(1, g.Size))
	f.sgl = g.region.SGL(len(g.flows)%places*g.Size, g.Size)
	g.flows = append(g.flows, f)
	g.mu.Unlock()
	if g.prepare != nil {
		return f, g.prepare(f)
	}
	return f, nil
}

// options of a connection: the private data is the token of this end's region.
func (d *device) options() await.Options {
	return await.Options{
		InboundReadLimit: 16, OutboundReadLimit: 16,
		PrivateData:  binary.BigEndian.AppendUint32(nil, d.region.RemoteToken()),
		Disconnected: func() { d.goneOnce.Do(func() { close(d.gone) }) },
	}
}

// learn reads the token of the peer's region.
func (f *flow) learn() error {
	var data [256]byte // more than any private data
	length := uint32(len(data))
	if status := f.connector.GetConnectionData(nil, nil, data[:], &length); status != provider.StatusSuccess {
		return fmt.Errorf("connection data: %w", status)
	}
	f.token = binary.BigEndian.Uint32(data[:])
	return nil
}

// accept takes n connections.
func (g *group) accept(ctx context.Context, l *await.RequestListener, n int) error {
	for range n {
		c, err := l.Next(ctx)
		if err != nil {
			return err
		}
		peer, status := c.PeerAddress()
		if status != provider.StatusSuccess {
			return fmt.Errorf("peer's address: %w", status)
		}
		f, err := g.newFlow(peer.Addr())
		if err != nil {
			return err
		}
		f.connector = c
		if err := await.Accept(ctx, c, f.qp, g.options()); err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		if err := f.learn(); err != nil {
			return err
		}
	}
	return nil
}

// listen waits for connections at this end's address.
func (d *device) listen(ctx context.Context) (*await.RequestListener, error) {
	l, err := await.Listen(ctx, d.adapter, netip.AddrPortFrom(d.Local, port))
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return l, nil
}

// dial makes the connections to all peers, several at a time.
func (g *group) dial(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	peers := make(chan netip.Addr)
	var dialing sync.WaitGroup
	for range min(dialers, g.QPs*len(g.Peers)) {
		dialing.Go(func() {
			for peer := range peers {
				if err := g.dialOne(ctx, peer); err != nil {
					cancel(fmt.Errorf("connect to %v: %w", peer, err))
				}
			}
		})
	}
	for range g.QPs {
		for _, peer := range g.Peers {
			select {
			case peers <- peer:
			case <-ctx.Done():
			}
		}
	}
	close(peers)
	dialing.Wait()
	return context.Cause(ctx)
}

func (g *group) dialOne(ctx context.Context, peer netip.Addr) error {
	f, err := g.newFlow(peer)
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(dialPatience); ; {
		f.connector, err = await.Dial(ctx, g.adapter, f.qp, g.Local, netip.AddrPortFrom(peer, port), g.options())
		if err == nil {
			return f.learn()
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return err
		}
		// Nobody listens there yet.
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}

// disconnect tells the peers that the measurement is over.
func (g *group) disconnect(ctx context.Context) error {
	told := map[netip.Addr]bool{}
	for _, f := range g.flows {
		if told[f.peer] {
			continue
		}
		told[f.peer] = true
		if err := await.Disconnect(ctx, f.connector); err != nil {
			return fmt.Errorf("disconnect: %w", err)
		}
	}
	return nil
}

// wait waits, or fails with what comes from failure, or when a peer disconnects.
func (g *group) wait(ctx context.Context, length time.Duration, failure <-chan error) error {
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case err := <-failure:
		return err
	case <-g.gone:
		return errors.New("the peer disconnected")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// pause waits, or fails with ctx.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
