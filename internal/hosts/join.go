package hosts

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/control"
)

// joinTime bounds the time in which two hosts make a trunk.
const joinTime = 10 * time.Second

// trunkParams say where the other end of a trunk listens.
type trunkParams struct {
	Peer    string // the other host
	Address string // with a port
}

// Join makes the sockets of a trunk between two hosts, and gives both parts theirs (PartTrunk). a connects to b, at the address
// by which b has come to the head. Both prove that they are of the lab before anything else is read.
func (h *Head) Join(ctx context.Context, a, b *Host) error {
	ctx, cancel := context.WithTimeout(ctx, joinTime)
	defer cancel()
	port, err := methodListen.Call(ctx, b.Conn, a.Name)
	if err != nil {
		return joinError(a, b, err)
	}
	var accepted, dialled error
	var both sync.WaitGroup
	both.Go(func() {
		if accepted = methodAccept.Call(ctx, b.Conn, a.Name); accepted != nil {
			cancel()
		}
	})
	both.Go(func() {
		params := trunkParams{Peer: b.Name, Address: net.JoinHostPort(b.Address, strconv.Itoa(port))}
		if dialled = methodDial.Call(ctx, a.Conn, params); dialled != nil {
			cancel() // nobody comes any more
		}
	})
	both.Wait()
	// One failure leads to the other's cancellation, which says nothing.
	if err := errors.Join(unlessCancelled(dialled), unlessCancelled(accepted)); err != nil {
		return joinError(a, b, err)
	}
	if dialled != nil || accepted != nil {
		return joinError(a, b, fmt.Errorf("not within %v: a firewall between hosts has to let TCP and UDP pass", joinTime))
	}
	return nil
}

func unlessCancelled(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

func joinError(a, b *Host, err error) error {
	return control.Errorf(control.Unable, "trunk of hosts %s and %s: %v", a.Name, b.Name, err)
}

// listeners are those of a worker for trunks that are being made, by the other host's name.
type listeners struct {
	mu     sync.Mutex // guards what follows
	byPeer map[string]net.Listener
}

// open makes one, and returns its port.
func (l *listeners) open(peer string) (int, error) {
	listener, err := net.Listen("tcp", ":0")
	if err != nil {
		return 0, control.Errorf(control.Unable, "no port for a trunk: %v", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if old := l.byPeer[peer]; old != nil {
		old.Close() // of a trunk that came to nothing
	}
	if l.byPeer == nil {
		l.byPeer = map[string]net.Listener{}
	}
	l.byPeer[peer] = listener
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// take returns one, which the caller closes.
func (l *listeners) take(peer string) (net.Listener, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	listener := l.byPeer[peer]
	if listener == nil {
		return nil, control.Errorf(control.Usage, "nobody listens for a trunk to host %s", peer)
	}
	delete(l.byPeer, peer)
	return listener, nil
}

// acceptTrunk waits for the other host, and gives the part the sockets. Others that connect are sent away.
func (w *worker) acceptTrunk(ctx context.Context, peer string) error {
	listener, err := w.listeners.take(peer)
	if err != nil {
		return err
	}
	defer listener.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // those whose greeting is under way
	defer context.AfterFunc(ctx, func() { listener.Close() })()
	greeted := make(chan *sockets)
	refused := make(chan error)
	greeting := make(chan struct{}, mostGreetings)
	go func() {
		for {
			select {
			case greeting <- struct{}{}:
			case <-ctx.Done():
				return
			}
			c, err := listener.Accept()
			if err != nil {
				return // closed
			}
			go func() {
				defer func() { <-greeting }()
				s, err := w.credentials.greetAsListener(ctx, c.(*net.TCPConn), trunkName(peer, w.Name))
				if err != nil {
					select {
					case refused <- fmt.Errorf("connection from %v: %w", c.RemoteAddr(), err):
					case <-ctx.Done():
					}
					return
				}
				select {
				case greeted <- s:
				case <-ctx.Done():
					s.close()
				}
			}()
		}
	}()
	var last error // of one that was sent away
	for {
		select {
		case s := <-greeted:
			return w.handOver(ctx, peer, s)
		case last = <-refused:
		case <-ctx.Done():
			return errors.Join(last, ctx.Err())
		}
	}
}

// dialTrunk connects to the other host, and gives the part the sockets.
func (w *worker) dialTrunk(ctx context.Context, p trunkParams) error {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", p.Address)
	if err != nil {
		return fmt.Errorf("host %s does not reach host %s (%w): a firewall between hosts has to let TCP and UDP pass", w.Name, p.Peer, err)
	}
	s, err := w.credentials.greetAsDialer(ctx, c.(*net.TCPConn), trunkName(w.Name, p.Peer))
	if err != nil {
		return fmt.Errorf("host %s does not reach host %s at %s: %w", w.Name, p.Peer, p.Address, err)
	}
	return w.handOver(ctx, p.Peer, s)
}

// trunkName tells trunks of one lab apart in what is signed.
func trunkName(dialer, listener string) string { return dialer + " " + listener }

// sockets are those of a trunk.
type sockets struct {
	stream *net.TCPConn
	pings  *net.UDPConn // connected
}

func (s *sockets) close() {
	s.stream.Close()
	s.pings.Close()
}

// handOver gives the part the sockets, and closes those of this process.
func (w *worker) handOver(ctx context.Context, peer string, s *sockets) error {
	defer s.close()
	raw, err := s.stream.SyscallConn()
	if err != nil {
		return err
	}
	var optionErr error
	err = raw.Control(func(fd uintptr) {
		optionErr = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(silenceLimit/time.Millisecond))
	})
	if err = errors.Join(err, optionErr); err != nil {
		return fmt.Errorf("trunk to host %s: %w", peer, err)
	}
	stream, err := s.stream.File()
	if err != nil {
		return err
	}
	defer stream.Close()
	pings, err := s.pings.File()
	if err != nil {
		return err
	}
	defer pings.Close()
	select {
	case <-w.started:
		return PartTrunk.Call(ctx, w.part, peer, stream, pings)
	default:
		return control.Errorf(control.Usage, "host %s has no part yet", w.Name)
	}
}
