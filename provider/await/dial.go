package await

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/ndklab/ndklab/provider"
)

// Options are settings that either end of a connection may give.
type Options struct {
	InboundReadLimit, OutboundReadLimit uint32 // READs in progress; capped to what the adapters allow
	PrivateData                         []byte // to the peer
	// SharedEndpoint is the one that Dial connects from, in place of a local address; nil for none.
	SharedEndpoint *provider.SharedEndpoint
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
	if o.SharedEndpoint == nil && !local.IsValid() {
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
		if o.SharedEndpoint != nil {
			return c.ConnectWithSharedEndpoint(qp, o.SharedEndpoint, remote,
				o.InboundReadLimit, o.OutboundReadLimit, o.PrivateData, completion, context)
		}
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

// LocalAddress returns the address of this machine, or network namespace, that packets
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

// Dial connects to a peer that listens, and returns when the connection is established.
func (e *Endpoint) Dial(ctx context.Context, remote netip.AddrPort) (*Conn, error) {
	return e.DialShared(ctx, nil, remote)
}

// DialShared is Dial from a shared endpoint, in place of a port of the connection's own. From one
// of them there is at most one connection to each peer (NDK-CONN-18).
func (e *Endpoint) DialShared(ctx context.Context, from *provider.SharedEndpoint, remote netip.AddrPort) (*Conn, error) {
	ctx, release := e.bound(ctx)
	defer release()
	c, err := e.dial(ctx, from, remote)
	if err != nil {
		return nil, fmt.Errorf("dial %v: %w", remote, explain(e.because(err)))
	}
	return c, nil
}

func (e *Endpoint) dial(ctx context.Context, from *provider.SharedEndpoint, remote netip.AddrPort) (*Conn, error) {
	c, err := e.newConn(ctx)
	if err != nil {
		return nil, err
	}
	o := c.options()
	o.SharedEndpoint = from
	c.remote = remote
	if c.Connector, err = Dial(ctx, e.Adapter, c.QP, e.Local, remote, o); err != nil {
		c.discard()
		return nil, err
	}
	return c, e.add(c)
}

// explanations gives the meanings of the statuses of connecting and listening.
var explanations = map[provider.Status]string{
	provider.StatusInvalidAddress:       "the adapter does not have the local address",  // NDK-LSN-05, NDK-CONN-15
	provider.StatusSharingViolation:     "the address is in use",                        // NDK-LSN-04
	provider.StatusAddressAlreadyExists: "there is such a connection already",           // NDK-CONN-18
	provider.StatusConnectionRefused:    "nobody listens there, or the peer refuses",    // NDK-CONN-08 to 10
	provider.StatusConnectionAborted:    "the peer has given up",                        // NDK-CONN-20
	provider.StatusIOTimeout:            "the peer does not answer",                     // NDK-CONN-12
	provider.StatusNetworkUnreachable:   "there is no route",                            // NDK-CONN-11
	provider.StatusHostUnreachable:      "there is no route that leads to a peer there", // NDK-CONN-11
}

// explain adds to a status what it means.
func explain(err error) error {
	var status provider.Status
	if errors.As(err, &status) && explanations[status] != "" {
		return fmt.Errorf("%s: %w", explanations[status], err)
	}
	return err
}
