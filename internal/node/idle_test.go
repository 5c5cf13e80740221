package node

import (
	"errors"
	"maps"
	"net"
	"net/netip"
	"os"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/topology"
)

// idleAddress is that of an idle node, at its loopback interface, which needs no link.
var idleAddress = netip.MustParsePrefix("10.1.1.1/32")

// idleNode returns a node that is up and has no process, with an adapter.
func idleNode(t *testing.T, change func(*Config)) *Agent {
	t.Helper()
	cfg := Config{Lab: "l", Name: "n", Idle: true, Interfaces: []Interface{{Name: "lo", MTU: 4200, Addresses: []netip.Prefix{idleAddress}}}}
	if change != nil {
		change(&cfg)
	}
	a, _ := started(t, cfg)
	if err := a.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a.PID() != 0 {
		t.Fatal("the node has a process")
	}
	return a
}

// TestIdleAnswers asks a node without a process what a monitor does. It says the same of itself as its agent does, and does not
// get one for that.
func TestIdleAnswers(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"host":       nil,
		"router":     func(cfg *Config) { cfg.Forwards = true },
		"no address": func(cfg *Config) { cfg.Interfaces[0].Addresses = nil },
	} {
		t.Run(name, func(t *testing.T) {
			a := idleNode(t, change)
			ask := func() (Counters, Observation) {
				counters, err := a.Counters(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				o, err := a.Observe(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				return counters, o
			}
			counters, observation := ask()
			if a.PID() != 0 {
				t.Error("it got a process to be asked")
			}
			if _, ok := a.Observed(time.Now()); !ok || observation.Number == 0 {
				t.Errorf("the observation, number %d, does not hold until something happens", observation.Number)
			}
			if _, err := a.Connections(t.Context()); err != nil {
				t.Fatal(err)
			}
			if a.PID() == 0 {
				t.Fatal("it has no process, although it was asked for what only that has")
			}
			agents, fresh := ask()
			if !reflect.DeepEqual(counters, agents) {
				t.Errorf("counters without a process\n%v\nand with one\n%v", counters, agents)
			}
			if fresh.Number == observation.Number {
				t.Error("the agent's observation has the number of that without it")
			}
			observation.Number, fresh.Number = 0, 0
			if !reflect.DeepEqual(observation, fresh) {
				t.Errorf("observed without a process\n%+v\nand with one\n%+v", observation, fresh)
			}
		})
	}
}

// TestIdleStartsByPacket sends a packet to the adapter of a node without a process. Its process is started and receives that
// packet.
func TestIdleStartsByPacket(t *testing.T) {
	a := idleNode(t, nil)
	receives(t, a)
}

// TestIdleTriesAgain: a node without a process, whose process finds no room when a packet arrives, gets it when there is some.
func TestIdleTriesAgain(t *testing.T) {
	cfg := Config{Lab: "l", Name: "n", Idle: true, Interfaces: []Interface{{Name: "lo", MTU: 4200, Addresses: []netip.Prefix{idleAddress}}}}
	a, log := started(t, cfg)
	if err := a.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	var conn net.Conn
	var dialed error
	if err := a.inNetwork(func() { conn, dialed = net.Dial("udp", netip.AddrPortFrom(idleAddress.Addr(), roce.Port).String()) }); err != nil || dialed != nil {
		t.Fatal(err, dialed)
	}
	defer conn.Close()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	_, err := conn.Write([]byte("no packet of RoCE"))
	for said := make([]byte, 100); err == nil; {
		if n, _ := log.ReadAt(said, 0); n > 0 {
			break
		}
	}
	if err := errors.Join(err, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)); err != nil {
		t.Fatal(err)
	}
	for a.PID() == 0 {
		select {
		case <-a.Done():
			t.Fatal("the node has ended")
		case <-time.After(time.Millisecond):
		}
	}
}

// receives sends a packet to the adapter of a node without a process, and waits until its process has it.
func receives(t *testing.T, a *Agent) {
	t.Helper()
	var sent error
	if err := a.inNetwork(func() {
		var conn net.Conn
		if conn, sent = net.Dial("udp", netip.AddrPortFrom(idleAddress.Addr(), roce.Port).String()); sent == nil {
			_, sent = conn.Write([]byte("no packet of RoCE"))
			sent = errors.Join(sent, conn.Close())
		}
	}); err != nil || sent != nil {
		t.Fatal(err, sent)
	}
	for a.PID() == 0 || a.channel() == nil {
		select {
		case <-a.Done():
			t.Fatal("the node has ended")
		case <-time.After(time.Millisecond):
		}
	}
	for {
		counters, err := a.Counters(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if counters.Transport["malformed"] == 1 {
			return
		}
	}
}

// TestIdleStartsOnce asks a node without a process many things at once.
func TestIdleStartsOnce(t *testing.T) {
	began := make(chan int, 100)
	a := idleNode(t, func(cfg *Config) { cfg.Began = func(pid int) { began <- pid } })
	answers := make(chan error)
	for range 20 {
		go func() {
			_, err := a.Connections(t.Context())
			answers <- err
		}()
	}
	for range 20 {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	if pid := <-began; pid != a.PID() || len(began) != 0 {
		t.Errorf("process %d began, the node has %d, and %d others", pid, a.PID(), len(began))
	}
}

// TestIdleSignal sends a signal to a node without a process, which is started for it.
func TestIdleSignal(t *testing.T) {
	a := idleNode(t, nil)
	if err := a.Send(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	awaitDone(t, a)
	if got, want := a.Exit(), (Exit{Status: 2}); got != want { // as TestAgentExit has it
		t.Errorf("exit %v, want %v", got, want)
	}
}

// TestIdleKill kills nodes that have no process: one that is up, and one that is not. Nothing is open afterwards.
func TestIdleKill(t *testing.T) {
	// opened returns how many files of each name are open. Those of namespaces and sockets have a name of their own.
	opened := func() map[string]int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		of := map[string]int{}
		for _, e := range entries {
			name, err := os.Readlink("/proc/self/fd/" + e.Name())
			if err == nil { // else it was that of the folder itself
				of[name]++
			}
		}
		return of
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a finalizer would close what nobody has any more
	shared := new(Machine)
	if err := shared.openProc(); err != nil { // which it keeps
		t.Fatal(err)
	}
	shared.written = 1
	log := newLog(t)
	before := opened()
	for _, up := range []bool{true, false} {
		a, err := Start(Config{Lab: "l", Name: "n", Idle: true, Machine: shared, Interfaces: []Interface{{Name: "lo", MTU: 4200, Addresses: []netip.Prefix{idleAddress}}}}, nil, log.File)
		if err != nil {
			t.Fatal(err)
		}
		if up {
			if err := a.Up(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		a.Kill()
		a.Kill()
		awaitDone(t, a)
		if got, want := a.Exit(), (Exit{Signal: unix.SIGKILL}); got != want {
			t.Errorf("exit %v, want %v", got, want)
		}
		if _, err := a.Connections(t.Context()); !errors.Is(err, control.ErrClosed) {
			t.Errorf("a call after the end: %v", err)
		}
		if err := a.Up(t.Context()); !errors.Is(err, control.ErrClosed) {
			t.Errorf("up after the end: %v", err)
		}
		if _, err := a.Network(); !errors.Is(err, control.ErrClosed) {
			t.Errorf("the network after the end: %v", err)
		}
	}
	// The instance of arrivals is closed by the goroutine that waits there.
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for late := time.Now().Add(time.Minute); ; <-tick.C {
		left := opened()
		maps.DeleteFunc(left, func(name string, n int) bool { return n <= before[name] })
		if len(left) == 0 {
			break
		}
		if time.Now().After(late) {
			t.Fatalf("open files are left: %v", left)
		}
	}
}

// TestIdleNetwork changes the network of a node without a process, which stays without.
func TestIdleNetwork(t *testing.T) {
	a := idleNode(t, nil)
	to := a.cfg
	other := netip.MustParsePrefix("10.1.2.1/32")
	to.Interfaces = []Interface{{Name: "lo", MTU: 4200, Addresses: []netip.Prefix{idleAddress, other}}}
	if err := a.Reconfigure(to); err != nil {
		t.Fatal(err)
	}
	if err := a.SetRoutes([]topology.Route{}); err != nil {
		t.Fatal(err)
	}
	var found bool
	var failed error
	if err := a.inNetwork(func() {
		var list []netlink.Addr
		list, failed = netlink.AddrList(nil, netlink.FAMILY_V4)
		for _, entry := range list {
			found = found || entry.IP.Equal(other.Addr().AsSlice())
		}
	}); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	if !found || a.PID() != 0 {
		t.Errorf("the address is there: %v, process %d", found, a.PID())
	}
}

// TestIdleLosesAddresses takes addresses away from a node without a process. It goes on with the others, or without an adapter.
func TestIdleLosesAddresses(t *testing.T) {
	others := []netip.Prefix{netip.MustParsePrefix("10.1.1.2/32"), netip.MustParsePrefix("10.1.1.3/32")}
	for name, kept := range map[string][]netip.Prefix{"one is left": {idleAddress}, "none is left": nil} {
		t.Run(name, func(t *testing.T) {
			a := idleNode(t, func(cfg *Config) {
				cfg.Interfaces[0].Addresses = []netip.Prefix{others[0], idleAddress, others[1]}
			})
			to := a.cfg
			to.Interfaces = []Interface{{Name: "lo", MTU: 4200, Addresses: kept}}
			if err := a.Reconfigure(to); err != nil {
				t.Fatal(err)
			}
			if a.PID() != 0 {
				t.Fatal("it got a process for that")
			}
			handleIn(t, a) // its network is still kept
			if kept != nil {
				receives(t, a)
			}
			if o, err := a.Connections(t.Context()); err != nil || len(o) != 0 {
				t.Errorf("%+v, %v", o, err)
			}
		})
	}
}

// known returns the IPv6 neighbours that are entered in a node's network. At the loopback interface IPv4 has one for all.
func known(t *testing.T, a *Agent) (all []string) {
	t.Helper()
	entries, err := handleIn(t, a).NeighList(loopback, netlink.FAMILY_V6)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.State == netlink.NUD_PERMANENT {
			all = append(all, e.IP.String())
		}
	}
	slices.Sort(all)
	return all
}

// TestIdleNeighbours: the neighbours of a host are entered when it gets its process, those that it was told last, and itself is
// not among them, also with an address that a neighbour had. A router has them before.
func TestIdleNeighbours(t *testing.T) {
	neighbours := func(addresses ...string) (all []Neighbour) {
		for _, a := range addresses {
			all = append(all, Neighbour{netip.MustParseAddr(a), net.HardwareAddr{2, 0, 0, 0, 0, 1}})
		}
		return all
	}
	for name, test := range map[string]struct {
		forwards, begun bool // begun: it has a process before it is up
		idle, after     []string
	}{
		"host":          {after: []string{"fd00:1::3"}},
		"router":        {forwards: true, idle: []string{"fd00:1::2"}, after: []string{"fd00:1::3"}},
		"early process": {begun: true, idle: []string{"fd00:1::2"}, after: []string{"fd00:1::3"}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Config{Lab: "l", Name: "n", Idle: true, Forwards: test.forwards, Interfaces: []Interface{{
				Name: "lo", MTU: 4200, Addresses: []netip.Prefix{idleAddress, netip.MustParsePrefix("fd00:1::1/128")},
				Neighbours: neighbours("fd00:1::1", "fd00:1::2"),
			}}}
			a, _ := started(t, cfg)
			if test.begun {
				if _, err := a.begin(); err != nil {
					t.Fatal(err)
				}
			}
			if err := a.Up(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := known(t, a); !slices.Equal(got, test.idle) {
				t.Errorf("it is up and knows %v, want %v", got, test.idle)
			}
			to := cfg
			to.Interfaces = slices.Clone(cfg.Interfaces)
			to.Interfaces[0].Addresses = []netip.Prefix{idleAddress, netip.MustParsePrefix("fd00:1::2/128")}
			to.Interfaces[0].Neighbours = neighbours("fd00:1::2", "fd00:1::3")
			// An interface that has left before the node was told so.
			gone := Interface{Name: "eth9", Neighbours: neighbours("fd00:1::4")}
			if err := a.Reconfigure(to); err != nil {
				t.Fatal(err)
			}
			if got := known(t, a); !test.begun && !test.forwards && len(got) != 0 {
				t.Errorf("it has no process yet, and knows %v", got)
			}
			a.mu.Lock()
			a.configured.Interfaces = append([]Interface{gone}, a.configured.Interfaces...)
			a.mu.Unlock()
			if _, err := a.Connections(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := known(t, a); !slices.Equal(got, test.after) {
				t.Errorf("it has a process and knows %v, want %v", got, test.after)
			}
		})
	}
}

// TestIdleRefuses connects to a node without a process, and so without a listener. The peer is told so, as by any other.
func TestIdleRefuses(t *testing.T) {
	a, b := linkedAs(t, func(cfg *Config) { cfg.Idle = true })
	if a.PID() != 0 {
		t.Fatal("the node has a process")
	}
	to := netip.AddrPortFrom(a.cfg.addresses()[0].Address, 4420)
	status, _, stderr := run(t, b, Command{Args: []string{self, "dial", b.cfg.addresses()[0].Address.String(), to.String()}, Env: append(env, envProgram+"=1")}, "")
	if status != 1 || !strings.Contains(stderr, provider.StatusConnectionRefused.Error()) {
		t.Errorf("status %d: %s", status, stderr)
	}
	if a.PID() == 0 {
		t.Error("the node answered without a process")
	}
}
