package lease

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/provider/cm"
	"github.com/ndklab/ndklab/provider"
)

// A holder is a process that has a share, or is about to, as the owner sees it.
type holder struct {
	server  *Server
	conn    *control.Conn     // fixed by begin
	counted map[string]uint64 // by the process's transport; guarded by the server's mu

	mu          sync.Mutex // guards what follows; none other is taken with it held
	share       int        // 0 before begin
	pid         int        // in the owner's PID namespace; 0 if it is in none there
	gone        bool
	connections map[cm.ID]cm.Record // that the process has, and its peers may know of
	out         chan datagram       // to be sent, as far as there is room; nil before begin
	state       chan state          // the latest that is to be sent
}

// waitingDatagrams bounds the datagrams that wait for a process. Those that come
// while it keeps that many waiting are lost; their senders repeat them.
const waitingDatagrams = 1024

// requests answers the process.
func (h *holder) requests() *control.Mux {
	var mux control.Mux
	methodLease.Handle(&mux, h.lease)
	noticeConnection.Handle(&mux, func(_ context.Context, r *control.Request, record cm.Record) error {
		return h.endForViolation(r.Conn, h.recordConnection(record))
	})
	noticeCounters.Handle(&mux, func(_ context.Context, _ *control.Request, counted map[string]uint64) error {
		h.noteCounters(counted)
		return nil
	})
	NoticeQPErrors.Handle(&mux, func(_ context.Context, r *control.Request, list []provider.QPError) error {
		return h.endForViolation(r.Conn, h.reportQPErrors(list))
	})
	return &mux
}

// current returns the processes that have a share.
func (s *Server) current() iter.Seq[*holder] {
	return func(yield func(*holder) bool) {
		for i := range s.holders {
			if h := s.holders[i].Load(); h != nil && !yield(h) {
				return
			}
		}
	}
}

// begin makes h the holder of a share.
func (h *holder) begin(share, pid int, conn *control.Conn) error {
	s := h.server
	s.mu.Lock() // the present state is the first that it is told, and no later one is missed
	defer s.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gone || h.share != 0 {
		return control.Errorf(control.Usage, "the process is gone, or has a share already")
	}
	h.share, h.pid, h.conn = share, pid, conn
	h.connections = map[cm.ID]cm.Record{}
	h.out, h.state = make(chan datagram, waitingDatagrams), make(chan state, 1)
	h.state <- s.state
	s.holders[share].Store(h)
	s.serving.Go(h.send)
	return nil
}

// send sends what there is for the process.
func (h *holder) send() {
	for {
		var err error
		select {
		case s := <-h.state:
			err = noticeState.Send(h.conn, s)
		case d := <-h.out:
			err = noticeDatagram.Send(h.conn, d)
		case <-h.conn.Done():
			return
		}
		if errors.Is(err, control.ErrClosed) {
			return
		}
	}
}

// forward sends a datagram to the process, if there is room.
func (h *holder) forward(d datagram) {
	select {
	case h.out <- d:
	default:
	}
}

// setState tells the process of a state, instead of one that it has not been told
// of yet. The server's mu is held.
func (h *holder) setState(s state) {
	select {
	case <-h.state:
	default:
	}
	h.state <- s
}

// moreConnections is the number of connections that a process may have beyond the queue
// pairs that it can have: for some it has yet to make a queue pair, of others it has closed
// it.
const moreConnections = 1024

// recordConnection keeps what the process reports of a connection. It returns an error if the process
// cannot have the connection.
func (h *holder) recordConnection(r cm.Record) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.connections == nil {
		return nil // it has no share, and so nothing to tell
	}
	most := int(h.server.config.Capabilities.MaxQpCount) + moreConnections
	_, known := h.connections[r.ID]
	switch {
	case r.ID.Share() != h.share:
		return fmt.Errorf("connection %#x is not of its share", uint32(r.ID))
	case r.Local.Addr().Zone() != "" || r.Remote.Addr().Zone() != "":
		return fmt.Errorf("connection %#x has an address with a zone", uint32(r.ID))
	case r.State == cm.Closed:
		delete(h.connections, r.ID)
	case !known && len(h.connections) >= most:
		return fmt.Errorf("it has %d connections, more than it can have", most+1)
	default:
		h.connections[r.ID] = r
	}
	return nil
}

// longestReason bounds the reason of a queue pair's error, bytes.
const longestReason = 256

// reportQPErrors tells of queue pairs in error. The error says that no ErrorTeller has told so.
func (h *holder) reportQPErrors(list []provider.QPError) error {
	if len(list) > errorsAtOnce+1 {
		return fmt.Errorf("it tells of %d errors at once", len(list))
	}
	tell := h.server.config.QPError
	for _, e := range list {
		if len(e.Reason) > longestReason || e.Remote.Zone() != "" {
			return errors.New("the error of a queue pair is not of a device's making")
		}
		if tell != nil {
			tell(e)
		}
	}
	return nil
}

// endForViolation ends the lease of a process that has said what no device says, if why is not
// nil, and returns why. Everything that the process had is freed as if it had died, and its device
// fails.
func (h *holder) endForViolation(conn *control.Conn, why error) error {
	if why == nil {
		return nil
	}
	h.mu.Lock()
	pid := h.pid
	h.mu.Unlock()
	if log := h.server.config.Log; log != nil {
		log(fmt.Sprintf("the lease of process %d is ended: %v", pid, why))
	}
	conn.End()
	return why
}

// end frees what the process had, which is gone.
func (h *holder) end() {
	h.mu.Lock()
	h.gone = true
	share, left := h.share, slices.Collect(maps.Values(h.connections))
	h.mu.Unlock()
	if share == 0 {
		return
	}
	s := h.server
	h.leaveCounters()
	// It fails only if the carrier is closed, and then nothing arrives anyway.
	_ = s.carrier.Reclaim(share)
	s.ledger.Clear(share)
	s.device.Manager().TakeOver(share, left, func() { s.freeShare(share) })
}
