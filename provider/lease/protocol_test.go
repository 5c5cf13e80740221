package lease

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/udp"
)

// TestOneLease: a process has one share at most, asks for nothing that is not
// known, and none is lost to one that is gone already.
func TestOneLease(t *testing.T) {
	s := serving(t, config(1))
	conn := dial(t, func(context.Context, *control.Request) (any, error) { return nil, nil })
	refused(t, control.NewProcedure[control.None]("nonsense").Call(patient(t), conn, nil), "unknown request")
	refused(t, control.NewProcedure[string]("connection").Call(patient(t), conn, "nonsense"), "connection: parameters")
	if _, err := methodLease.Call(patient(t), conn, leaseRequest{}); err != nil {
		t.Fatal(err)
	}
	_, err := methodLease.Call(patient(t), conn, leaseRequest{})
	refused(t, err, "has a share already")
	gone := &holder{server: s}
	gone.end()
	if err := gone.begin(7, 1, conn); err == nil {
		t.Error("a process that is gone has a share")
	}
	if s.taken[2] || s.holders[7].Load() != nil {
		t.Error("a share is lost")
	}
}

// TestMostProcesses: of more processes than may be connected the last is turned away, and
// nothing is left of what it has asked for. There is room again when another is gone.
func TestMostProcesses(t *testing.T) {
	s := serving(t, config(1))
	process := func() (conn *control.Conn, theirs *os.File) {
		sock, theirs := socketPair(t)
		conn = control.New(sock, nil)
		t.Cleanup(conn.Close)
		return conn, theirs
	}
	admit := func(theirs *os.File) {
		if err := s.Admit(theirs); err != nil {
			t.Error(err)
		}
		theirs.Close()
	}
	first, theirs := process()
	admit(theirs)
	for range mostConns - 1 {
		_, theirs := process()
		admit(theirs)
	}
	for range 10 {
		late, theirs := process()
		if err := control.NewNotice[leaseRequest]("lease").Send(late, leaseRequest{}); err != nil {
			t.Fatal(err)
		}
		s.mu.Lock() // what it has asked for would be read before it is turned away
		admitted := make(chan struct{})
		go func() {
			admit(theirs)
			close(admitted)
		}()
		for range 1000 {
			runtime.Gosched()
		}
		s.mu.Unlock()
		<-admitted
		if n := s.connected(); n != mostConns {
			t.Fatalf("%d processes are connected, want %d", n, mostConns)
		}
		<-late.Done()
	}
	s.mu.Lock()
	if slices.Contains(s.taken[1:], true) {
		t.Error("who was turned away has a share")
	}
	s.mu.Unlock()
	first.Close()
	for deadline := time.Now().Add(patience); s.connected() == mostConns; {
		if time.Now().After(deadline) {
			t.Fatal("a process that is gone is still connected")
		}
		runtime.Gosched()
	}
	opened(t)
}

// connected counts the processes that are connected.
func (s *Server) connected() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// A stingy carrier has no sockets for others.
type stingy struct{ Carrier }

func (stingy) Share(int) ([]*os.File, error) { return nil, errors.New("no more sockets") }

// TestNoSockets: a share that could not be given is free for the next.
func TestNoSockets(t *testing.T) {
	carrier, err := udp.Open(udp.Config{Addresses: ours})
	if err != nil {
		t.Fatal(err)
	}
	s, err := Serve(config(1), stingy{carrier})
	if err != nil {
		t.Fatal(err)
	}
	_, err = Open(patient(t))
	refused(t, err, "no more sockets")
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if s.taken[1] {
		t.Error("a share is lost")
	}
	s.Device().Close()
}

// TestOwnersMistakes: a process does not trust the owner blindly.
func TestOwnersMistakes(t *testing.T) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socketName, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	answers := make(chan any, 1)
	owner := make(chan *control.Conn, 1)
	go func() {
		for {
			sock, err := l.AcceptUnix()
			if err != nil {
				return
			}
			owner <- control.New(sock, func(context.Context, *control.Request) (any, error) { return <-answers, nil })
		}
	}()
	answers <- &leaseReply{Share: 1, Addresses: ours}
	_, err = Open(patient(t))
	refused(t, err, "0 files for 2 addresses")
	(<-owner).Wait()

	process := &client{}
	_, err = process.requests().Serve(t.Context(), &control.Request{Method: "nonsense"})
	refused(t, err, "unknown request")

	short, err := newMemory(len(ours) - 1)
	if err != nil {
		t.Fatal(err)
	}
	defer short.Close()
	_, err = openLedger(short, ours, 1)
	refused(t, err, "2 addresses take")
	if _, err := openLedger(short, ours[1:], 1); err != nil {
		t.Error(err)
	}
}

// TestGarbledNotices: what cannot be read changes nothing, on either side.
func TestGarbledNotices(t *testing.T) {
	was := state{Known: true, Enabled: true}
	process, holder := &client{state: was}, &holder{server: &Server{}}
	for method, handle := range map[string]control.Handler{
		"state": process.requests().Serve, "datagram": process.requests().Serve,
		"connection": holder.requests().Serve, "counters": holder.requests().Serve,
	} {
		for _, params := range []string{``, `7`, `["Enabled"]`, `{"Enabled": false`} {
			_, err := handle(t.Context(), &control.Request{Method: method, Params: json.RawMessage(params)})
			refused(t, err, method+": parameters")
		}
	}
	half := json.RawMessage(`{"Known": true, "Enabled": false, "Failed": "yes"}`)
	_, err := process.requests().Serve(t.Context(), &control.Request{Method: "state", Params: half})
	refused(t, err, "state: parameters")
	if process.state != was || holder.counted != nil {
		t.Errorf("state %+v, counters %v", process.state, holder.counted)
	}
}

// TestClosedServer: a server that is closed does not follow its device any more.
func TestClosedServer(t *testing.T) {
	s := serving(t, config(1))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	told := make(chan struct{})
	defer s.Device().Subscribe(func(provider.NetEvent) { close(told) })() // after the server, and told after it
	if status := s.Device().SetState(false); status != provider.StatusSuccess {
		t.Fatal(status)
	}
	select {
	case <-told:
	case <-time.After(patience):
		t.Fatal("no event")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.state.Enabled {
		t.Error("the closed server follows its device")
	}
}

// TestNothingKnown: until the owner has said what state its device is in, the
// process's is as it was started.
func TestNothingKnown(t *testing.T) {
	device := peer(t)
	process := &client{device: device}
	process.applyState()
	a, status := device.OpenAdapter(provider.OpenParameters{Version: provider.InterfaceVersion})
	if status != provider.StatusSuccess {
		t.Fatal(status)
	}
	a.Close()
}

// TestIdentity: two devices are told apart by their GUIDs.
func TestIdentity(t *testing.T) {
	var guids [2]uint64
	for i := range guids {
		t.Run("", func(t *testing.T) { guids[i] = serving(t, config(uint64(i))).config.GUID })
	}
	if guids[0] == guids[1] || guids[0] == 0 {
		t.Errorf("GUIDs %#x", guids)
	}
}

// dial connects to an owner as a process does, without asking for anything.
func dial(t *testing.T, handler control.Handler) *control.Conn {
	t.Helper()
	sock, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socketName, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	conn := control.New(sock, handler)
	t.Cleanup(func() {
		conn.Close()
		conn.Wait()
	})
	return conn
}

func refused(t *testing.T, err error, why string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("got %v, want %q", err, why)
	}
}
