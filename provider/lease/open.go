package lease

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/provider/cm"
	"github.com/ndklab/ndklab/internal/provider/descriptor"
	"github.com/ndklab/ndklab/internal/provider/sharing"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/provider/udp"
)

// Open opens the adapter of the node that the program runs in, for this process.
// The device is configured as the node is, and has its addresses. It is to be
// closed; if the process ends without, its connections are ended all the same.
// If the node ends, the device fails (Miniport.Fail). ctx bounds Open alone. The error is unix.ENOSPC, too, if as many
// processes share the adapter as can.
//
// The network namespace is that of the calling thread.
func Open(ctx context.Context) (*provider.Miniport, error) {
	m, _, err := OpenTelling(ctx)
	return m, err
}

// OpenTelling is Open for a process that may end without closing the device. tell has the owner know which queue pairs have
// failed and what the process's transport has counted until then, which a device that is closed says by itself.
func OpenTelling(ctx context.Context) (m *provider.Miniport, tell func(), err error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socketName)
	if errors.Is(err, unix.ECONNREFUSED) {
		return nil, nil, errors.New("open adapter: there is none here: run the program in a node " +
			"whose interfaces have addresses, with `ndklab exec LAB/NODE -- PROGRAM`")
	}
	if err != nil {
		return nil, nil, fmt.Errorf("open adapter: %w", err)
	}
	sock, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, nil, errors.Join(fmt.Errorf("open adapter: %s is no Unix socket", socketName), conn.Close())
	}
	closeInChild(sock)
	t, m, err := open(ctx, sock, leaseRequest{})
	if err != nil {
		return nil, nil, err
	}
	go t.watch()
	return m, func() {
		t.errors.Flush()
		t.tellCounters(m)
	}, nil
}

// tellCounters has the owner know what the device's transport has counted.
func (t *client) tellCounters(device *provider.Miniport) {
	// The owner that does not hear of it is gone.
	_ = noticeCounters.Send(t.conn, device.TransportCounters())
}

// closeInChild has a child of this process close the connection, which would keep its share.
func closeInChild(sock *net.UnixConn) {
	raw, err := sock.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { descriptor.Note(int(fd)) })
	}
	_ = err // it is closed: then there is nothing to note
}

// OpenOver is Open for a process that is in another network namespace than the node: it
// opens the adapter whose owner has been given the other end of sock (Server.Admit).
// The packets of the device are those of the node; the process's other sockets are not.
// sock is OpenOver's from now on.
//
// abandon ends the device as the end of the process would, without waiting for anything
// that is open on it: the device fails, its connections are ended, and its sockets are
// closed when abandon returns. Of a device that is closed it does nothing.
func OpenOver(ctx context.Context, sock *net.UnixConn) (m *provider.Miniport, abandon func(), err error) {
	t, m, err := open(ctx, sock, leaseRequest{Outside: true})
	if err != nil {
		return nil, nil, err
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		t.watch()
	}()
	return m, func() {
		t.conn.Close()
		<-over
	}, nil
}

func open(ctx context.Context, sock *net.UnixConn, w leaseRequest) (*client, *provider.Miniport, error) {
	t := &client{}
	defer t.closeFiles()
	t.conn = control.New(sock, t.requests().Serve)
	m, err := t.start(ctx, w)
	if err != nil {
		t.conn.Close()
		return nil, nil, fmt.Errorf("open adapter: %w", err)
	}
	return t, m, nil
}

// A client is this process's side of a lease.
type client struct {
	conn  *control.Conn
	files []*os.File // as the owner gave them; closed when Open returns
	// carrier is the device's, and errors tells of its queue pairs'; set by start.
	carrier *udp.Carrier
	errors  *ErrorTeller

	mu     sync.Mutex         // guards what follows
	device *provider.Miniport // nil until it is started, and when it is closed
	state  state              // as the owner said last
}

func (t *client) closeFiles() {
	for _, f := range t.files {
		f.Close()
	}
}

// start asks for the lease and starts the device with it.
func (t *client) start(ctx context.Context, w leaseRequest) (*provider.Miniport, error) {
	terms, err := methodLease.Call(ctx, t.conn, w)
	if err != nil {
		var said *control.Error
		if errors.As(err, &said) && said.Code == control.Unable {
			return nil, fmt.Errorf("%w (%w)", err, unix.ENOSPC)
		}
		return nil, err
	}
	sockets := 1 + len(terms.Addresses)
	if len(t.files) < sockets || !w.Outside && len(t.files) > sockets {
		return nil, fmt.Errorf("%d files for %d addresses", len(t.files), len(terms.Addresses))
	}
	ledger, err := openLedger(t.files[0], terms.Addresses, terms.Share)
	if err != nil {
		return nil, err
	}
	network := udp.Config{Addresses: terms.Addresses, Interfaces: terms.Interfaces, Sockets: t.files[1:sockets]}
	if w.Outside {
		network.Spare = t.files[sockets:]
	}
	carrier, err := udp.Open(network)
	if err != nil {
		return nil, err
	}
	cfg := terms.Config
	cfg.Carrier = &leasedCarrier{carrier, t}
	cfg.Clock = clock.Dilated(clock.Real(), terms.Dilation)
	cfg.Rand = rand.New(rand.NewPCG(terms.Seed[0], terms.Seed[1]))
	cfg.Share = &sharing.Config{Ledger: ledger, Report: t.report}
	t.errors = NewErrorTeller(t.conn)
	cfg.QPError = t.errors.Tell
	t.mu.Lock()
	defer t.mu.Unlock()
	device, err := provider.NewMiniport(cfg)
	if err != nil {
		return nil, errors.Join(err, carrier.Close())
	}
	t.device = device
	t.applyState()
	t.carrier = carrier
	return device, nil
}

// watch fails the device when the owner is gone, and lets go of its network namespace.
func (t *client) watch() {
	<-t.conn.Done()
	t.mu.Lock()
	device := t.device
	if device != nil {
		device.Fail()
	}
	t.mu.Unlock()
	if device != nil {
		// Closing loses nothing: packets sent from now on would have reached nobody.
		_ = t.carrier.Close()
	}
}

// requests answers the owner.
func (t *client) requests() *control.Mux {
	var mux control.Mux
	methodFiles.Handle(&mux, t.takeFiles)
	methodCounters.Handle(&mux, t.transportCounters)
	methodQueuePairs.Handle(&mux, t.queuePairs)
	noticeDatagram.Handle(&mux, t.handIn)
	noticeState.Handle(&mux, t.setState)
	return &mux
}

// takeFiles keeps descriptors. They come one after the other, and before the answer that
// start waits for.
func (t *client) takeFiles(_ context.Context, r *control.Request, _ control.None) error {
	t.files = append(t.files, r.Files...)
	clear(r.Files)
	return nil
}

func (t *client) handIn(_ context.Context, _ *control.Request, d datagram) error {
	if device := t.openDevice(); device != nil {
		device.HandIn(d.Flow, d.Payload)
	}
	return nil
}

func (t *client) transportCounters(context.Context, *control.Request, control.None) (map[string]uint64, error) {
	device := t.openDevice()
	if device == nil {
		return nil, control.Errorf(control.Unable, "the device is closed")
	}
	return device.TransportCounters(), nil
}

func (t *client) setState(_ context.Context, _ *control.Request, s state) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.state = s
	t.applyState()
	return nil
}

// openDevice returns the device; nil until it is started, and when it is closed.
func (t *client) openDevice() *provider.Miniport {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.device
}

// applyState has the device do as the owner's. mu is held.
func (t *client) applyState() {
	if t.device == nil || t.state == (state{}) {
		return
	}
	if t.state.Failed {
		t.device.Fail()
	} else {
		t.device.Recover()
	}
	// The status says only that the configuration forbids, or the device's failure
	// prevents, what the owner has not done either.
	_ = t.device.SetState(t.state.Enabled)
}

// report is the device's sharing.Config.Report. The channel's buffer outlives this process:
// what is in it, the owner knows.
func (t *client) report(r cm.Record) {
	// If the channel has ended, so has the owner, and the device is about to fail.
	_ = noticeConnection.Send(t.conn, r)
}

// A leasedCarrier ends the lease when the device closes it.
type leasedCarrier struct {
	*udp.Carrier
	client *client
}

// Close implements provider.Carrier.
func (c *leasedCarrier) Close() error {
	err := c.Carrier.Close()
	t := c.client
	t.mu.Lock()
	device := t.device
	t.device = nil
	t.mu.Unlock()
	if device != nil {
		t.tellCounters(device)
	}
	t.conn.Close()
	return err
}
