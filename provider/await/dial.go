package await

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"github.com/ndklab/ndklab/provider"
)

// Options are what both ends of a connection may say.
type Options struct {
	InboundReadLimit, OutboundReadLimit uint32 // READs in progress; capped to what the adapters allow
	PrivateData                         []byte // to the peer
	// Disconnected, which may be nil, is called when the peer disconnects or is
	// lost, on a goroutine of the provider's: it must not block.
	Disconnected func()
}

func (o *Options) event() provider.DisconnectEvent {
	if o.Disconnected == nil {
		return nil
	}
	return func(any) { o.Disconnected() }
}

// Dial connects qp from an address of the adapter's to a peer that listens, and
// returns when the connection is established. If local is the zero Addr, it is
// LocalAddress that chooses it. On an error there is no connector left, unless
// closing it takes longer than ctx allows.
func Dial(ctx context.Context, adapter *provider.Adapter, qp *provider.QP, local netip.Addr, remote netip.AddrPort, o Options) (*provider.Connector, error) {
	if !local.IsValid() {
		var err error
		if local, err = LocalAddress(remote.Addr()); err != nil {
			return nil, err
		}
	}
	c, err := Create(ctx, adapter.CreateConnector)
	if err != nil {
		return nil, err
	}
	err = Request(ctx, func(completion provider.RequestCompletion, context any) provider.Status {
		return c.Connect(qp, netip.AddrPortFrom(local, 0), remote,
			o.InboundReadLimit, o.OutboundReadLimit, o.PrivateData, completion, context)
	})
	if err == nil {
		err = Request(ctx, func(completion provider.RequestCompletion, context any) provider.Status {
			return c.CompleteConnect(o.event(), nil, completion, context)
		})
	}
	if err != nil {
		c.Close(nil, nil)
		return nil, err
	}
	return c, nil
}

// LocalAddress is the address of this machine, or network namespace, that packets
// to remote come from: of the addresses that an adapter has there, the one to
// connect from.
func LocalAddress(remote netip.Addr) (netip.Addr, error) {
	// Connecting a UDP socket sends nothing, but looks up the route.
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(remote, 9)))
	if err != nil {
		return netip.Addr{}, fmt.Errorf("no address to connect from: %w", err)
	}
	defer c.Close()
	local, err := netip.ParseAddrPort(c.LocalAddr().String())
	return local.Addr(), err
}

// Accept consents to the request that a connector stands for, with qp, and
// returns when the peer has established the connection. On an error the
// connector is closed.
func Accept(ctx context.Context, c *provider.Connector, qp *provider.QP, o Options) error {
	err := Request(ctx, func(completion provider.RequestCompletion, context any) provider.Status {
		return c.Accept(qp, o.InboundReadLimit, o.OutboundReadLimit, o.PrivateData, o.event(), nil, completion, context)
	})
	if err != nil {
		c.Close(nil, nil)
	}
	return err
}

// Disconnect ends a connection and waits for the peer's answer.
func Disconnect(ctx context.Context, c *provider.Connector) error {
	return Request(ctx, c.Disconnect)
}
