package lease

import (
	"bufio"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/provider/sharing"
	"github.com/ndklab/ndklab/internal/provider/transport"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/await"
	"github.com/ndklab/ndklab/provider/clock"
)

// TestOpenNowhere: the error says what to do.
func TestOpenNowhere(t *testing.T) {
	_, err := Open(t.Context())
	if err == nil || !strings.Contains(err.Error(), "ndklab exec LAB/NODE -- PROGRAM") {
		t.Error(err)
	}
}

// TestShare connects processes' parts of a device with each other, with the
// owner's and with another device.
func TestShare(t *testing.T) {
	for i, family := range []string{"IPv4", "IPv6"} {
		for name, ends := range map[string]func(*testing.T, *Server) (client, server *provider.Miniport, from, to netip.Addr){
			"process to process": func(t *testing.T, s *Server) (client, server *provider.Miniport, from, to netip.Addr) {
				return opened(t), opened(t), ours[i], ours[i]
			},
			"process to owner": func(t *testing.T, s *Server) (client, server *provider.Miniport, from, to netip.Addr) {
				return opened(t), s.Device(), ours[i], ours[i]
			},
			"owner to process": func(t *testing.T, s *Server) (client, server *provider.Miniport, from, to netip.Addr) {
				return s.Device(), opened(t), ours[i], ours[i]
			},
			"process to peer": func(t *testing.T, s *Server) (client, server *provider.Miniport, from, to netip.Addr) {
				return opened(t), peer(t), ours[i], theirs[i]
			},
			"peer to process": func(t *testing.T, s *Server) (client, server *provider.Miniport, from, to netip.Addr) {
				return peer(t), opened(t), theirs[i], ours[i]
			},
		} {
			t.Run(family+", "+name, func(t *testing.T) {
				s := serving(t, config(1))
				a, b, from, to := ends(t, s)
				server, client := consuming(t, b), consuming(t, a)
				join(t, client, from, server, listening(t, server, netip.AddrPortFrom(to, 0)))
				if err := await.Disconnect(patient(t), client.conn); err != nil {
					t.Error(err)
				}
				<-server.disconnected
			})
		}
	}
}

// TestTerms: the process's device is what the owner's is.
func TestTerms(t *testing.T) {
	cfg := config(1)
	cfg.Info.MaxTransferLength = 12345
	cfg.Capabilities.MaxPdCount = 1
	cfg.Pend = true
	s := serving(t, cfg)
	device := opened(t)
	a, status := device.OpenAdapter(provider.OpenParameters{Version: provider.InterfaceVersion})
	if status != provider.StatusSuccess {
		t.Fatal(status)
	}
	defer a.Close()
	owners, status := s.Device().OpenAdapter(provider.OpenParameters{Version: provider.InterfaceVersion})
	if status != provider.StatusSuccess {
		t.Fatal(status)
	}
	defer owners.Close()
	if d := cmp.Diff(owners.Info(), a.Info()); d != "" {
		t.Error(d)
	}
	if a.Info().MaxTransferLength != 12345 {
		t.Error("the owner's limit is not kept")
	}
	pended := make(chan provider.Status, 1)
	_, status = a.CreateCQ(1, nil, nil, nil, func(_ any, status provider.Status, o provider.Object) {
		pended <- status
		o.Close(nil, nil)
	}, nil)
	if status != provider.StatusPending || <-pended != provider.StatusSuccess {
		t.Errorf("a create does not pend: %v", status)
	}
	// Limits are of all processes together (NDK-CAP-03).
	pd, status := owners.CreatePD(nil, nil)
	if status != provider.StatusSuccess {
		t.Fatal(status)
	}
	if _, status := a.CreatePD(nil, nil); status != provider.StatusInsufficientResources {
		t.Errorf("one PD too many: %v", status)
	}
	pd.Close(nil, nil)
	pd, status = a.CreatePD(nil, nil)
	if status != provider.StatusSuccess {
		t.Error(status)
	}
	pd.Close(nil, nil)
}

// TestDilation: the process's device lives by a clock as slow as the owner's.
func TestDilation(t *testing.T) {
	cfg := config(1)
	cfg.Clock = clock.Dilated(clock.Real(), 40)
	serving(t, cfg)
	if factor := clock.Factor(opened(t).Clock()); factor != 40 {
		t.Errorf("its clock is dilated by %d, want 40", factor)
	}
}

// TestAllShares takes all there are.
func TestAllShares(t *testing.T) {
	serving(t, config(1))
	first, err := Open(patient(t))
	if err != nil {
		t.Fatal(err)
	}
	for range sharing.Max - 2 {
		opened(t)
	}
	_, err = Open(patient(t))
	if err == nil || !strings.Contains(err.Error(), "63 processes share the node's adapter already, and no more can") {
		t.Errorf("one too many: %v", err)
	}
	first.Close()
	reopened(t)
}

// reopened opens the device when a share of it is free, which one that was given
// up becomes soon.
func reopened(t *testing.T) *provider.Miniport {
	t.Helper()
	ctx := patient(t)
	for {
		device, err := Open(ctx)
		if err == nil {
			t.Cleanup(device.Close)
			return device
		}
		if !strings.Contains(err.Error(), "no more can") {
			t.Fatal(err)
		}
	}
}

// A program is a process that uses the device.
type program struct {
	*exec.Cmd
	lines *bufio.Scanner
}

func start(t *testing.T, name string, args ...string) *program {
	t.Helper()
	p := &program{Cmd: exec.Command("/proc/self/exe", args...)}
	p.Env = append(os.Environ(), envProgram+"="+name)
	p.Stderr = os.Stderr
	p.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.lines = bufio.NewScanner(out)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.kill() })
	return p
}

// line is the next that it says.
func (p *program) line(t *testing.T) string {
	t.Helper()
	if !p.lines.Scan() {
		t.Fatalf("the program has ended: %v", p.lines.Err())
	}
	return p.lines.Text()
}

// kill kills the program, and returns when it did.
func (p *program) kill() time.Time {
	now := time.Now()
	_ = p.Process.Kill() // it may have ended before
	_ = p.Wait()         // or been waited for
	return now
}

// TestKilled kills processes that are connected: their peers hear of it, and
// nothing is left of them.
func TestKilled(t *testing.T) {
	for _, test := range []struct {
		name string
		peer func(*testing.T, *Server) (*provider.Miniport, netip.Addr)
	}{
		{"connected with another device", func(t *testing.T, s *Server) (*provider.Miniport, netip.Addr) {
			return peer(t), theirs[0]
		}},
		{"connected with the owner", func(t *testing.T, s *Server) (*provider.Miniport, netip.Addr) {
			return s.Device(), ours[0]
		}},
		{"connected with another process", func(t *testing.T, s *Server) (*provider.Miniport, netip.Addr) {
			return opened(t), ours[0]
		}},
	} {
		t.Run("client "+test.name, func(t *testing.T) {
			s := serving(t, config(1))
			device, at := test.peer(t, s)
			server := consuming(t, device)
			l := listening(t, server, netip.AddrPortFrom(at, 0))
			remote, err := l.Address()
			if err != nil {
				t.Fatal(err)
			}
			p := start(t, "dial", ours[0].String(), remote.String())
			if err := server.accept(patient(t), l); err != nil {
				t.Fatal(err)
			}
			if err := expect(server.exchange(patient(t), 's'))('c'); err != nil {
				t.Fatal(err)
			}
			if got := p.line(t); got != "connected" {
				t.Fatal(got)
			}
			s.check(t, p, "established", remote)
			s.killed(t, p, server)
		})
		t.Run("server "+test.name, func(t *testing.T) {
			s := serving(t, config(1))
			device, at := test.peer(t, s)
			p := start(t, "listen", ours[0].String())
			remote := netip.MustParseAddrPort(p.line(t))
			want := []provider.LocalEndpointEntry{
				{Local: remote, UserModeOwner: true, OwnerPID: uint32(p.Process.Pid), Listener: true},
			}
			if d := cmp.Diff(want, s.LocalEndpoints(), cmpopts.EquateComparable(netip.AddrPort{})); d != "" {
				t.Error(d)
			}
			client := consuming(t, device)
			if err := client.dial(patient(t), at, remote); err != nil {
				t.Fatal(err)
			}
			if err := expect(client.exchange(patient(t), 'c'))('s'); err != nil {
				t.Fatal(err)
			}
			s.killed(t, p, client)
			if got := s.LocalEndpoints(); len(got) != 0 {
				t.Errorf("endpoints %v", got)
			}
		})
	}
}

// check waits until the only connection of a program is as it should be: what the
// program reports is known to the owner soon, but not at once.
func (s *Server) check(t *testing.T, p *program, state string, remote netip.AddrPort) {
	t.Helper()
	ctx := patient(t)
	for {
		var got []provider.ConnectionEntry
		for _, e := range s.Connections() {
			if e.OwnerPID == uint32(p.Process.Pid) {
				got = append(got, e)
			}
		}
		if len(got) == 1 && got[0].State == state && got[0].Remote == remote && got[0].UserModeOwner &&
			got[0].QPN>>transport.ShareShift != 0 && got[0].RemoteQPN != 0 {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("connections %+v", got)
		}
		runtime.Gosched()
	}
}

// killed kills a program that is connected with c, and waits until nothing is
// left of it.
func (s *Server) killed(t *testing.T, p *program, c *consumer) {
	t.Helper()
	at := p.kill()
	select {
	case when := <-c.disconnected:
		t.Logf("the peer was told after %v", when.Sub(at))
	case <-time.After(patience):
		t.Fatal("the peer was not told")
	}
	s.awaitShares(t, uint32(p.Process.Pid))
	for _, held := range s.ledger.Ports() {
		if held.Share != 0 && s.holders[held.Share].Load() == nil {
			t.Errorf("port %v of share %d is left", held.Address, held.Share)
		}
	}
}

// awaitShares waits until the process with a PID, which has been killed, is gone
// for the server too, and every share without a holder is free.
func (s *Server) awaitShares(t *testing.T, pid uint32) {
	t.Helper()
	ctx := patient(t)
	for share := 1; share < sharing.Max; share++ {
		held := func() bool {
			h := s.holders[share].Load()
			return h == nil && s.isTaken(share) || h != nil && uint32(h.pid) == pid
		}
		for held() {
			if ctx.Err() != nil {
				t.Fatalf("share %d does not become free", share)
			}
			runtime.Gosched()
		}
	}
	for _, e := range s.Connections() {
		if e.OwnerPID == pid {
			t.Errorf("left: %+v", e)
		}
	}
}

func (s *Server) isTaken(share int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken[share]
}

// TestTransportCounters: those of all processes, also when they are gone.
func TestTransportCounters(t *testing.T) {
	s := serving(t, config(1))
	process, err := Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	server := consuming(t, s.Device())
	client, err := newConsumer(process)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.ready(); err != nil {
		t.Fatal(err)
	}
	join(t, client, ours[0], server, listening(t, server, netip.AddrPortFrom(ours[0], 0)))
	// inAll checks that all have sent what owner and process have.
	inAll := func(when string) {
		t.Helper()
		packets := func(m *provider.Miniport) uint64 { return m.TransportCounters()["packets_sent"] }
		least := packets(s.Device()) + packets(process)
		got := s.TransportCounters(t.Context())["packets_sent"]
		if most := packets(s.Device()) + packets(process); packets(process) == 0 || got < least || got > most {
			t.Errorf("%s: %d packets sent in all, want %d to %d", when, got, least, most)
		}
	}
	inAll("while the process is there")
	if err := client.close(patient(t)); err != nil {
		t.Fatal(err)
	}
	process.Close()
	// The process is gone when its share is free.
	for s.holders[1].Load() != nil {
		runtime.Gosched()
	}
	inAll("when it is gone")
}

// TestNotify: whoever wants to know hears of each process that connects and that is gone.
func TestNotify(t *testing.T) {
	s := serving(t, config(1))
	changes := make(chan struct{}, 10)
	s.Notify(func() { changes <- struct{}{} })
	if s.Shared() {
		t.Error("shared before anybody has connected")
	}
	process, err := Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if <-changes; !s.Shared() {
		t.Error("not shared while a process is connected")
	}
	process.Close()
	if <-changes; s.Shared() {
		t.Error("shared after the process is gone")
	}
}
