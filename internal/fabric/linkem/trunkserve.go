package linkem

import (
	"context"
	"fmt"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"golang.org/x/sys/unix"
)

// trunk joins the engine with that of another host, and returns when the clocks are known.
func (s *service) trunk(ctx context.Context, r *control.Request, name string) error {
	stream, err := takeSocket(r, 0, unix.SOCK_STREAM)
	if err != nil {
		return fmt.Errorf("trunk to %s: %w", name, err)
	}
	pings, err := takeSocket(r, 1, unix.SOCK_DGRAM)
	if err != nil {
		unix.Close(stream)
		return fmt.Errorf("trunk to %s: %w", name, err)
	}
	// Of no use to sockets that are not TCP's.
	_ = unix.SetsockoptInt(stream, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	_ = unix.SetsockoptInt(stream, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsentLow)
	var q *peer
	err = s.commands.do(func() (err error) {
		q, err = s.trunks.add(name, stream, pings)
		return err
	})
	if err != nil {
		unix.Close(stream)
		unix.Close(pings)
		return err
	}
	select {
	case <-q.met:
		return nil
	case <-q.ended:
		return q.reason
	case <-ctx.Done():
		return ctx.Err()
	}
}

// takeSocket takes a file of a request, which is a socket of a type, for the engine to keep.
func takeSocket(r *control.Request, i, kind int) (int, error) {
	got, err := unix.GetsockoptInt(int(r.Files[i].Fd()), unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil || got != kind {
		return -1, control.Errorf(control.Usage, "file %d is no socket of type %d: %d, %v", i, kind, got, err)
	}
	fd, err := unix.FcntlInt(r.Files[i].Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("dup: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("O_NONBLOCK: %w", err)
	}
	return fd, nil
}

func (s *service) awaitTrunkEnd(ctx context.Context, _ *control.Request, name string) error {
	var q *peer
	if err := s.commands.do(func() error {
		if q = s.trunks.byName[name]; q == nil {
			return control.Errorf(control.Usage, "the engine has no trunk to %s", name)
		}
		return nil
	}); err != nil {
		return err
	}
	select {
	case <-q.ended:
		return q.reason
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *service) trunkCounts(context.Context, *control.Request, control.None) (map[string]TrunkCounts, error) {
	all := map[string]TrunkCounts{}
	err := s.commands.do(func() error {
		clock := time.Now()
		wall := time.Duration(clock.UnixNano()) - clock.Sub(s.trunks.Time)
		for name, q := range s.trunks.byName {
			c := q.counts
			c.Wall = wall
			c.Ahead, c.Wrong, c.Trip = q.agreed.Ahead(), q.offset.Wrong(s.trunks.now()), q.offset.Trip()
			all[name] = c
		}
		return nil
	})
	return all, err
}
