package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/node/adapter"
	"github.com/ndklab/ndklab/internal/node/pfc"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/provider/lease"
	"github.com/ndklab/ndklab/provider/udp"
	"github.com/ndklab/ndklab/topology"
)

// This file starts an adapter as a topology describes it, and shares it with other processes.
// Those in the node do that by themselves (package lease).

// pacingBurst is the number of bytes on the wire that a queue pair may catch up with which is late, since wake-ups are, by some
// 50 us (clock.Precise): at 2 Gb/s, where it is eight packets of 4 KiB, these take 130 us. Limiters of adapters have such a
// bound, too (congestion.md c3).
const pacingBurst = 32 << 10

// wakeTime bounds the lateness of a queue pair that is woken, on a machine that has something else to do as well.
const wakeTime = 100 * time.Microsecond

// startAdapter starts the node's adapter, at all its addresses, and shares it
// with the programs that run in the node. bound are the sockets at which it receives, if they
// were made before (bind). qpError is told of queue pairs in error.
func startAdapter(params *upParams, bound []*os.File, c clock.Clock, qpError func(provider.QPError), changed func()) (*lease.Server, error) {
	settings, err := params.settings()
	if err != nil {
		return nil, err
	}
	sockets := udp.Config{Lazy: true, Moved: changed, ReceiveBuffer: udp.Memory(int(settings.ReceiveBuffer))}
	if len(bound) > 0 {
		sockets.Bound = bound
	}
	for _, a := range params.Addresses {
		sockets.Addresses = append(sockets.Addresses, a.Address)
		sockets.Interfaces = append(sockets.Interfaces, a.Interface)
	}
	control := &settings.Congestion
	control.LineRates, control.Burst, control.Unbounded = params.LineRates, pacingBurst, params.Buffered
	control.WakeTime = wakeTime / time.Duration(clock.Factor(c)) // the machine's time, by the adapter's clock
	carrier, err := udp.Open(sockets)
	if err != nil {
		return nil, err
	}
	settings.Clock = c
	settings.QPError = qpError
	settings.Rand = adapter.Rand(params.Seed)
	settings.Log = func(message string) { log.Printf("adapter: %s", message) }
	server, err := lease.Serve(settings, carrier)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("adapter: %w", err), carrier.Close())
	}
	server.Notify(changed)
	return server, nil
}

// settings returns those of the adapter.
func (p *upParams) settings() (provider.Config, error) {
	var set topology.Adapter
	if p.Adapter != nil {
		if err := json.Unmarshal(p.Adapter, &set); err != nil {
			return provider.Config{}, fmt.Errorf("adapter: %w", err)
		}
	}
	return adapter.Config(&set), nil
}

// bind makes the sockets at which the adapter receives, in the network namespace of the calling thread.
func (p *upParams) bind() ([]*os.File, error) {
	settings, err := p.settings()
	if err != nil {
		return nil, err
	}
	var local []netip.Addr
	for _, a := range p.Addresses {
		local = append(local, a.Address)
	}
	return udp.Bind(local, udp.Memory(int(settings.ReceiveBuffer)))
}

// obeyPauses has an adapter obey its switch.
func (p *upParams) obeyPauses(c clock.Clock, shared *lease.Server) (*pfc.Listener, error) {
	var interfaces []pfc.Interface
	for _, a := range p.Addresses {
		i := slices.IndexFunc(interfaces, func(o pfc.Interface) bool { return o.Name == a.Interface })
		if i < 0 {
			i = len(interfaces)
			interfaces = append(interfaces, pfc.Interface{Name: a.Interface})
		}
		interfaces[i].Addresses = append(interfaces[i].Addresses, a.Address)
	}
	l, err := pfc.Listen(p.PFC, c, interfaces, shared.Pause)
	if err != nil {
		return nil, err
	}
	l.SetRates(p.LineRates)
	return l, nil
}

// addresses returns the node's addresses that an adapter can have.
func (cfg *Config) addresses() []localAddress {
	var addresses []localAddress
	for _, i := range cfg.Interfaces {
		for _, prefix := range i.Addresses {
			if a := prefix.Addr(); adapter.Takes(a) {
				addresses = append(addresses, localAddress{a, i.Name})
			}
		}
	}
	return addresses
}

// methodShare carries a socket. A process that has its other end shares the adapter.
var methodShare = control.NewProcedure[control.None]("share").WithFiles(1, 1)

// ShareAdapter shares the node's adapter with the process that has the other end of a Unix
// stream socket: it calls lease.OpenOver. The file stays the caller's.
func (c *Client) ShareAdapter(ctx context.Context, f *os.File) error {
	return c.named(methodShare.Call(ctx, c.conn, nil, f))
}

// share answers Agent.ShareAdapter.
func (a *agent) share(_ context.Context, r *control.Request, _ control.None) error {
	shared := a.sharedAdapter()
	if shared == nil {
		return errNoAdapter
	}
	return shared.Admit(r.Files[0])
}

// methodLineRates is the request to know other rates of lines.
var methodLineRates = control.NewProcedure[lineRates]("line-rates")

// lineRates has the rates of the lines at all addresses, as Config.LineRates. Requests may overtake each other: one that is
// numbered less than another that has been answered does nothing.
type lineRates struct {
	Number uint64
	Rates  map[netip.Addr]uint64
}

// SetLineRates has the adapter know other rates of its lines, as in Config.LineRates: new queue pairs begin at them, and new
// pauses last by them. It follows Up.
func (a *Agent) SetLineRates(ctx context.Context, rates map[netip.Addr]uint64) error {
	return a.named(methodLineRates.Call(ctx, a.conn, lineRates{a.rates.Add(1), rates}))
}

// setLineRates answers Agent.SetLineRates.
func (a *agent) setLineRates(_ context.Context, _ *control.Request, params lineRates) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.shared == nil {
		return errNoAdapter
	}
	if params.Number < a.rated {
		return nil
	}
	a.rated = params.Number
	for _, local := range a.shared.Addresses() {
		a.shared.Device().SetLineRate(local, params.Rates[local])
	}
	if a.pauses != nil {
		a.pauses.SetRates(params.Rates)
	}
	return nil
}
