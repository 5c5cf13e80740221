package lease

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/sharing"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/provider/udp"
)

// A Carrier is one whose addresses can be shared: package udp's.
type Carrier interface {
	provider.Carrier
	// Share hands out the sockets of share k, one for each of Addresses, which
	// are the caller's to close.
	Share(k int) ([]*os.File, error)
	// Interfaces are the names of the interfaces that have Addresses, in that order.
	Interfaces() []string
	// Reclaim has nothing more arrive in a share whose holder is gone.
	Reclaim(k int) error
}

// A Server shares a device with the processes of its network namespace. Its
// methods may be called from any goroutine.
type Server struct {
	device  *provider.Miniport
	carrier Carrier
	ledger  *sharing.Ledger
	memory  *os.File // the ledger's
	config  provider.Config
	// countable are the names of the transport's counters; fixed by Serve.
	countable map[string]uint64
	// answering is the constant of that name; tests have another.
	answering time.Duration

	listener    *net.UnixListener
	unsubscribe func()
	serving     sync.WaitGroup
	holders     [sharing.Max]atomic.Pointer[holder] // of the shares; nil: nobody

	mu     sync.Mutex // guards what follows; taken with the device's locks held
	taken  [sharing.Max]bool
	rand   *rand.Rand // of the seeds
	state  state
	notify func()                     // what Notify was given
	conns  map[*control.Conn]struct{} // nil once closed
	past   map[string]uint64          // what the transports of processes that are gone have counted
}

// Serve starts a device on carrier and shares it. cfg is the device's, whose
// Carrier, Share and GUID Serve sets. The carrier is the
// device's own if Serve succeeds.
func Serve(cfg provider.Config, carrier Carrier) (*Server, error) {
	addresses := carrier.Addresses()
	memory, err := newMemory(len(addresses))
	if err != nil {
		return nil, fmt.Errorf("share adapter: ledger: %w", err)
	}
	s := &Server{
		carrier: carrier, memory: memory, answering: answering, conns: map[*control.Conn]struct{}{}, past: map[string]uint64{},
		rand: rand.New(rand.NewPCG(cfg.Rand.Uint64(), cfg.Rand.Uint64())),
	}
	if s.ledger, err = openLedger(memory, addresses, 0); err != nil {
		return nil, errors.Join(fmt.Errorf("share adapter: %w", err), memory.Close())
	}
	if s.listener, err = listen(); err != nil {
		return nil, errors.Join(fmt.Errorf("share adapter: %w", err), memory.Close())
	}
	cfg.GUID = cfg.Rand.Uint64() | 1
	cfg.Carrier, cfg.Share = carrier, &sharing.Config{Ledger: s.ledger, Forward: s.forward}
	s.config = cfg
	if s.device, err = provider.NewMiniport(cfg); err != nil {
		return nil, errors.Join(err, s.listener.Close(), memory.Close())
	}
	s.countable = s.device.TransportCounters()
	s.state = state{Known: true, Enabled: cfg.Configuration == nil || cfg.Configuration.NetworkDirect != 0}
	s.unsubscribe = s.device.Subscribe(s.setState)
	s.serving.Go(s.accept)
	return s, nil
}

const (
	// longestMessage bounds what a process says at once, bytes: its counters, or a list
	// of errors, are less than a tenth of it.
	longestMessage = 64 << 10
	// mostConns bounds the processes that are connected, most of which have a share or are
	// told that there is none.
	mostConns = 4 * sharing.Max
)

// backlog is the number of processes that may wait to be accepted.
const backlog = 128

// listen is net.ListenUnix, but for the question how long backlogs may be, which is in
// a file below /proc/sys/net: every network namespace has one, and the kernel goes
// through them to find the caller's.
func listen() (*net.UnixListener, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	f := os.NewFile(uintptr(fd), socketName)
	defer f.Close() // net.FileListener has its own
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: socketName}); err != nil {
		return nil, fmt.Errorf("%s: %w", socketName, os.NewSyscallError("bind", err))
	}
	if err := unix.Listen(fd, backlog); err != nil {
		return nil, os.NewSyscallError("listen", err)
	}
	l, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	return l.(*net.UnixListener), nil
}

// Addresses are those of the device.
func (s *Server) Addresses() []netip.Addr { return s.carrier.Addresses() }

// Device returns the owner's part of the device.
func (s *Server) Device() *provider.Miniport { return s.device }

// Pause has packets from a local address wait whose DSCPs are among some, which are bits, in all processes that share the device,
// until it is called with others.
func (s *Server) Pause(local netip.Addr, dscps uint64) { s.ledger.SetPaused(local, dscps) }

// Close ends all leases, as if their processes had died, and shares no more.
// The device is the caller's to close. A second Close does nothing.
func (s *Server) Close() error {
	s.mu.Lock()
	conns := s.conns
	s.conns = nil
	s.mu.Unlock()
	if conns == nil {
		return nil
	}
	s.unsubscribe()
	for _, local := range s.Addresses() {
		s.Pause(local, 0) // nobody is left who would end it
	}
	err := s.listener.Close()
	for conn := range conns {
		conn.Close()
	}
	s.serving.Wait()
	if err := errors.Join(err, s.memory.Close()); err != nil {
		return fmt.Errorf("share adapter: close: %w", err)
	}
	return nil
}

// accept serves whoever connects.
func (s *Server) accept() {
	for {
		sock, err := s.listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// Somebody who is gone again, or for whom there is no descriptor now.
			time.Sleep(10 * time.Millisecond)
			continue
		}
		if !s.serve(sock) {
			return
		}
	}
}

// serve serves the process at the other end of sock, unless the server is closed.
func (s *Server) serve(sock *net.UnixConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns == nil || len(s.conns) == mostConns {
		sock.Close() // before anything is read that it asks for
		return s.conns != nil
	}
	h := &holder{server: s}
	defer s.changed()
	conn := control.NewBounded(sock, h.requests().Serve, longestMessage)
	s.conns[conn] = struct{}{}
	s.serving.Go(func() {
		conn.Wait()
		h.end()
		s.mu.Lock()
		delete(s.conns, conn)
		s.changed()
		s.mu.Unlock()
	})
	return true
}

// Notify has f called whenever a process has connected, or is gone. It must return soon, and not call the Server.
func (s *Server) Notify(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notify = f
}

// changed tells who wants to know that conns has changed. mu is held.
func (s *Server) changed() {
	if s.notify != nil {
		s.notify()
	}
}

// Shared reports whether other processes are connected, which then may have part of the device.
func (s *Server) Shared() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns) > 0
}

// Admit shares the device with the process that has the other end of a Unix stream
// socket, wherever that is, as if it had connected: it calls OpenOver. The file stays the caller's.
func (s *Server) Admit(f *os.File) error {
	conn, err := net.FileConn(f)
	if err != nil {
		return fmt.Errorf("share adapter: %w", err)
	}
	sock, ok := conn.(*net.UnixConn)
	if !ok {
		return errors.Join(fmt.Errorf("share adapter: %s is no Unix socket", conn.LocalAddr().Network()), conn.Close())
	}
	if !s.serve(sock) {
		return fmt.Errorf("share adapter: %w", net.ErrClosed)
	}
	return nil
}

// takeShare takes a free share.
func (s *Server) takeShare() (share int, seed [2]uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	share = 1 + slices.Index(s.taken[1:], false)
	if share == 0 {
		return 0, seed, control.Errorf(control.Unable,
			"%d processes share the node's adapter already, and no more can", sharing.Max-1)
	}
	s.taken[share] = true
	return share, [2]uint64{s.rand.Uint64(), s.rand.Uint64()}, nil
}

func (s *Server) freeShare(share int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken[share] = false
}

// forward is the device's sharing.Config.Forward.
func (s *Server) forward(share int, flow roce.Flow, payload []byte) bool {
	h := s.holders[share].Load()
	if h == nil {
		return false
	}
	h.forward(datagram{flow, slices.Clone(payload)})
	return true
}

// setState enables, disables or fails the devices of all processes as the owner's.
func (s *Server) setState(e provider.NetEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = state{true, e.Code == provider.NetEventNDKEnable, s.device.Failed()}
	for h := range s.current() {
		h.setState(s.state)
	}
}

// lease gives the process a share.
func (h *holder) lease(ctx context.Context, r *control.Request, w leaseRequest) (leaseReply, error) {
	s, conn := h.server, r.Conn
	peer, err := conn.Peer()
	if err != nil {
		return leaseReply{}, err
	}
	share, seed, err := s.takeShare()
	if err != nil {
		return leaseReply{}, err
	}
	files, err := s.carrier.Share(share)
	if err != nil {
		s.freeShare(share)
		return leaseReply{}, err
	}
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	if w.Outside {
		spare, err := udp.Spare(s.carrier.Addresses())
		if err != nil {
			s.freeShare(share)
			return leaseReply{}, err
		}
		files = append(files, spare...)
	}
	if err := h.begin(share, int(peer.Pid), conn); err != nil {
		s.freeShare(share)
		return leaseReply{}, err
	}
	for batch := range slices.Chunk(append([]*os.File{s.memory}, files...), control.MaxFiles) {
		if err := methodFiles.Call(ctx, conn, nil, batch...); err != nil {
			return leaseReply{}, err
		}
	}
	return leaseReply{
		Share: share, Addresses: s.carrier.Addresses(), Interfaces: s.carrier.Interfaces(), Config: s.config, Dilation: clock.Factor(s.config.Clock), Seed: seed,
	}, nil
}
