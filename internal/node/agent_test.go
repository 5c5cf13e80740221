package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/node/workload"
	"github.com/ndklab/ndklab/topology"
)

func TestAgentProcess(t *testing.T) {
	a, _ := started(t, Config{Lab: "lab", Name: "node-1"})
	// The agent has settled when it answers.
	if _, err := a.Counters(t.Context()); err != nil {
		t.Fatal(err)
	}
	proc := "/proc/" + strconv.Itoa(a.PID()) + "/"
	for file, want := range map[string]string{
		"comm":    "ndklab-node\n",
		"cmdline": "ndklab-node lab/node-1\x00",
	} {
		if got, err := os.ReadFile(proc + file); string(got) != want || err != nil {
			t.Errorf("%s: %q, %v", file, got, err)
		}
	}
	for _, kind := range []string{"net", "uts", "mnt", "pid"} {
		if same := link(t, proc+"ns/"+kind) == link(t, "/proc/self/ns/"+kind); same {
			t.Errorf("the agent shares the %s namespace", kind)
		}
	}
	for _, kind := range []string{"user", "ipc"} {
		if same := link(t, proc+"ns/"+kind) == link(t, "/proc/self/ns/"+kind); !same {
			t.Errorf("the agent has a %s namespace of its own", kind)
		}
	}
	mounts, err := os.ReadFile(proc + "mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), " shared:") || strings.Contains(string(mounts), " master:") {
		t.Errorf("mounts are not private:\n%s", mounts)
	}
}

func link(t *testing.T, path string) string {
	t.Helper()
	s, err := os.Readlink(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestAgentFiles checks that the supervisor has no more open files after an
// agent than before it.
func TestAgentFiles(t *testing.T) {
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	log := newLog(t)
	shared := new(Machine)
	if err := shared.openProc(); err != nil { // which it keeps
		t.Fatal(err)
	}
	shared.written = 1
	before := count()
	for range 3 {
		a, err := Start(Config{Lab: "l", Name: "n", Machine: shared}, nil, log.File)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.Exec(t.Context(), Command{Args: []string{"true"}, Env: env}, log.File); err != nil {
			t.Fatal(err)
		}
		a.Kill()
		awaitDone(t, a)
	}
	if after := count(); after != before {
		t.Errorf("%d open files before, %d after", before, after)
	}
}

func TestAgentExit(t *testing.T) {
	for _, test := range []struct {
		name string
		end  func(*Agent) error
		want Exit
	}{
		{"Kill", func(a *Agent) error { a.Kill(); return nil }, Exit{Signal: unix.SIGKILL}},
		// As Go's runtime does to process 1, which a signal of its own does not end.
		{"ended by another", func(a *Agent) error { return a.Send(unix.SIGTERM) }, Exit{Status: 2}},
		{"channel closed", func(a *Agent) error { a.control.Close(); return nil }, Exit{}},
		{"killed while stopped", func(a *Agent) error {
			defer a.Kill()
			return stop(a)
		}, Exit{Signal: unix.SIGKILL}},
	} {
		t.Run(test.name, func(t *testing.T) {
			a, log := started(t, Config{Lab: "l", Name: "n"})
			if _, err := a.Counters(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := test.end(a); err != nil {
				t.Fatal(err)
			}
			awaitDone(t, a)
			if got := a.Exit(); got != test.want {
				t.Errorf("exit %v, want %v", got, test.want)
			}
			if text := log.text(t); text != "" {
				t.Errorf("log: %s", text)
			}
			if _, err := a.Counters(t.Context()); !errors.Is(err, control.ErrClosed) {
				t.Errorf("a call after the end: %v", err)
			}
		})
	}
}

// TestStatusTaken has another wait take the status of a child.
func TestStatusTaken(t *testing.T) {
	p, err := startProcess("/bin/true", []string{"true"}, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Wait4(p.pid, nil, 0, nil); err != nil {
		t.Fatal(err)
	}
	p.wait()
	if want := (Exit{Status: -1}); p.exit != want {
		t.Errorf("exit %v, want %v", p.exit, want)
	}
	if err := p.signal(unix.SIGKILL, false); err != unix.ESRCH {
		t.Errorf("signal: %v", err)
	}
}

func TestExitString(t *testing.T) {
	for want, e := range map[string]Exit{
		"was killed by SIGKILL":                  {Signal: unix.SIGKILL},
		"exited with status 2":                   {Status: 2},
		"exited with a status that is not known": {Status: -1},
	} {
		if e.String() != want {
			t.Errorf("got %s, want %s", e, want)
		}
	}
}

// TestAgentLastWords has the runtime end the agent with a traceback, as a panic
// does: every line of it must be in the log, with the node's name.
func TestAgentLastWords(t *testing.T) {
	a, log := started(t, Config{Lab: "l", Name: "n7"})
	if _, err := a.Counters(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(a.PID(), unix.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	awaitDone(t, a)
	if got := (Exit{Status: 2}); a.Exit() != got {
		t.Errorf("exit %v", a.Exit())
	}
	text := log.text(t)
	if !strings.Contains(text, "node n7: SIGQUIT: quit\n") || !strings.Contains(text, "node n7: goroutine ") {
		t.Errorf("log:\n%s", text)
	}
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "node n7: ") || !strings.HasSuffix(line, "\n") {
			t.Errorf("log line %q", line)
		}
	}
}

func TestCopyLines(t *testing.T) {
	log := newLog(t)
	r, w := pipe(t)
	long := strings.Repeat("x", 1500)
	if _, err := w.WriteString("one\n\n" + long + "\nend"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	copyLines(log.File, "> ", r)
	want := "> one\n> \n> " + long[:1024] + "\n> " + long[1024:] + "\n> end\n"
	if diff := cmp.Diff(want, log.text(t)); diff != "" {
		t.Error(diff)
	}
}

// linked starts two agents whose interfaces eth0 are joined, and brings them up.
func linked(t *testing.T) (a, b *Agent) {
	t.Helper()
	return linkedAs(t, func(*Config) {})
}

// linkedAs is linked, but that the configuration of the first is changed.
func linkedAs(t *testing.T, change func(*Config)) (a, b *Agent) {
	t.Helper()
	prefix := netip.MustParsePrefix
	addr := netip.MustParseAddr
	mac := func(s string) net.HardwareAddr {
		m, err := net.ParseMAC(s)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	cfgA := Config{Lab: "l", Name: "a", Interfaces: []Interface{{
		Name: "eth0", MTU: 4200,
		Addresses:  []netip.Prefix{prefix("10.0.0.1/30"), prefix("fd00:1::1/64")},
		Neighbours: []Neighbour{{addr("10.0.0.2"), mac("02:00:00:00:00:02")}, {addr("fd00:1::2"), mac("02:00:00:00:00:02")}},
	}}}
	cfgB := Config{Lab: "l", Name: "b", Interfaces: []Interface{{
		Name: "eth0", MTU: 4200,
		Addresses:  []netip.Prefix{prefix("10.0.0.2/30"), prefix("fd00:1::2/64")},
		Neighbours: []Neighbour{{addr("10.0.0.1"), mac("02:00:00:00:00:01")}, {addr("fd00:1::1"), mac("02:00:00:00:00:01")}},
	}}}
	change(&cfgA)
	a, _ = started(t, cfgA)
	b, _ = started(t, cfgB)
	// From within one of the namespaces: some kernels (6.1) refuse a name that an
	// interface has where the request is made.
	h := handleIn(t, a)
	if err := h.LinkAdd(&netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: "eth0", HardwareAddr: mac("02:00:00:00:00:01")},
		PeerName:  "eth0", PeerNamespace: netlink.NsPid(b.PID()), PeerHardwareAddr: mac("02:00:00:00:00:02"),
	}); err != nil {
		t.Fatal(err)
	}
	for _, agent := range []*Agent{a, b} {
		if err := agent.Up(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return a, b
}

func TestUp(t *testing.T) {
	a, b := linked(t)
	h := handleIn(t, a)
	for _, name := range []string{"lo", "eth0"} {
		l, err := h.LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		if l.Attrs().Flags&net.FlagUp == 0 {
			t.Errorf("%s is not up", name)
		}
	}
	eth0, err := h.LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	if got := eth0.Attrs().MTU; got != 4200 {
		t.Errorf("MTU %d", got)
	}
	var addresses []string
	for _, address := range awaitAddresses(t, a, h, eth0, 3) {
		addresses = append(addresses, address.IPNet.String())
		if address.IP.To4() != nil && address.Broadcast.String() != "10.0.0.3" {
			t.Errorf("%s: broadcast %s", address, address.Broadcast)
		}
		if address.Flags&unix.IFA_F_TENTATIVE != 0 && !address.IP.IsLinkLocalUnicast() {
			t.Errorf("%s is tentative", address)
		}
	}
	want := []string{"10.0.0.1/30", "fd00:1::1/64", "fe80::ff:fe00:1/64"}
	if diff := cmp.Diff(want, addresses); diff != "" {
		t.Error(diff)
	}
	for _, neighbour := range a.cfg.Interfaces[0].Neighbours {
		family := netlink.FAMILY_V4
		if neighbour.Addr.Is6() {
			family = netlink.FAMILY_V6
		}
		neighbours, err := h.NeighList(eth0.Attrs().Index, family)
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, n := range neighbours {
			found = found || n.IP.String() == neighbour.Addr.String() && n.State == netlink.NUD_PERMANENT &&
				n.HardwareAddr.String() == neighbour.MAC.String()
		}
		if !found {
			t.Errorf("no %v in %v", neighbour, neighbours)
		}
	}
	settings := []string{"/proc/sys/net/ipv6/conf/eth0/accept_dad", "/proc/sys/net/ipv6/conf/eth0/accept_ra"}
	if status, out, text := run(t, a, Command{Args: append([]string{"cat"}, settings...)}, ""); status != 0 || out != "0\n0\n" {
		t.Errorf("%v: %d %q %s", settings, status, out, text)
	}
	// The nodes reach each other, over IPv4 and IPv6.
	for i, local := range a.cfg.addresses() {
		from := local.Address
		spec := workload.Spec{Name: from.String(), Operation: topology.Send, Size: 5000, Depth: 1, Count: 3, Verify: true}
		at := netip.AddrPortFrom(b.cfg.addresses()[i].Address, 7000)
		if err := b.Workloads.Serve(t.Context(), spec, at); err != nil {
			t.Fatal(err)
		}
		if result, err := a.Workloads.Run(t.Context(), spec, from, at); err != nil || result.Messages != 3 || result.Errors != 0 {
			t.Errorf("%s to %s: %+v, %v", from, at, result, err)
		}
	}
	if err := a.Up(t.Context()); err == nil || err.Error() != "node a: up already" {
		t.Errorf("up twice: %v", err)
	}
}

func TestUpErrors(t *testing.T) {
	once := netip.MustParsePrefix("10.0.0.1/32")
	for _, test := range []struct {
		name string
		i    Interface
		want string
	}{
		{"no interface", Interface{Name: "eth7", MTU: 1500}, "node n: interface eth7: no such device"},
		{"MTU", Interface{Name: "lo", MTU: -1}, "node n: interface lo: up, MTU -1: "},
		{"address", Interface{Name: "lo", MTU: 65536, Addresses: []netip.Prefix{once, once}}, "node n: interface lo: address 10.0.0.1/32: file exists"},
		{"neighbour", Interface{Name: "lo", MTU: 65536, Neighbours: []Neighbour{{once.Addr(), net.HardwareAddr{1}}}},
			"node n: interface lo: neighbour 10.0.0.1 at 01: invalid argument"},
	} {
		t.Run(test.name, func(t *testing.T) {
			a, _ := started(t, Config{Lab: "l", Name: "n", Interfaces: []Interface{test.i}})
			if err := a.Up(t.Context()); err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("got %v, want %s...", err, test.want)
			}
		})
	}
}

// TestUpAwaitsRoutes: a node is not up before what comes for its IPv6 addresses is for the
// node, which the kernel sees to in its own time: here, where it does not look for such
// routes, not at all.
func TestUpAwaitsRoutes(t *testing.T) {
	lo := Interface{Name: "lo", MTU: 65536}
	for _, address := range []string{"fd00::1/64", "fd00::2/128", "fe80::1/64"} {
		lo.Addresses = append(lo.Addresses, netip.MustParsePrefix(address))
	}
	for _, local := range []bool{true, false} {
		a, _ := started(t, Config{Lab: "l", Name: "n", Interfaces: []Interface{lo}})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		want := "<nil>"
		if !local {
			rule := netlink.NewRule()
			rule.Family, rule.Priority, rule.Table = netlink.FAMILY_V6, 0, unix.RT_TABLE_LOCAL
			other := *rule
			other.Priority, other.Table = 100, unix.RT_TABLE_MAIN // without one of ours, no rule is asked (fib6_rule_lookup)
			h := handleIn(t, a)
			if err := errors.Join(h.RuleAdd(&other), h.RuleDel(rule)); err != nil {
				t.Fatal(err)
			}
			cancel()
			want = "node n: IPv6 addresses have no local routes yet: context canceled"
		}
		if err := a.Up(ctx); !strings.HasPrefix(fmt.Sprint(err), want) {
			t.Errorf("got %v, want %s...", err, want)
		}
	}
}

// handleIn is a netlink socket in the agent's network namespace.
func handleIn(t *testing.T, a *Agent) *netlink.Handle {
	t.Helper()
	network, err := a.Network()
	if err != nil {
		t.Fatal(err)
	}
	ns := netns.NsHandle(network.Fd())
	defer network.Close()
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

// awaitAddresses waits until an interface has so many addresses, and lists them. The kernel
// makes the link-local one when it has seen that the peer is up.
func awaitAddresses(t *testing.T, a *Agent, h *netlink.Handle, link netlink.Link, count int) []netlink.Addr {
	t.Helper()
	network, err := a.Network()
	if err != nil {
		t.Fatal(err)
	}
	ns := netns.NsHandle(network.Fd())
	defer network.Close()
	changes, done := make(chan netlink.AddrUpdate, 16), make(chan struct{})
	defer close(done)
	if err := netlink.AddrSubscribeAt(ns, changes, done); err != nil {
		t.Fatal(err)
	}
	deadline := time.After(time.Minute)
	for {
		list, err := h.AddrList(link, netlink.FAMILY_ALL)
		if err != nil {
			t.Fatal(err)
		}
		if len(list) >= count {
			return list
		}
		select {
		case <-changes:
		case <-deadline:
			t.Fatalf("it has only the addresses %v", list)
		}
	}
}

// TestUpStopped gives up on an agent that does not answer, and finds it working
// when it goes on.
func TestUpStopped(t *testing.T) {
	a, _ := started(t, Config{Lab: "l", Name: "n"})
	if err := stop(a); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := a.Counters(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if err := unix.Kill(a.PID(), unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := a.Up(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestConfigCrosses checks that a Config arrives as it was sent.
func TestConfigCrosses(t *testing.T) {
	sge := uint32(4)
	want := Config{Lab: "l", Name: "n", Seed: 1 << 63, Interfaces: []Interface{{
		Name: "eth0", MTU: 4200, Addresses: []netip.Prefix{netip.MustParsePrefix("fd00::1/64")},
		Neighbours: []Neighbour{{netip.MustParseAddr("10.0.0.1"), net.HardwareAddr{2, 0, 0, 0, 0, 1}}},
	}}}
	want.Adapter.MaxReadRequestSge = &sge
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got Config
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
}

func TestMainWithoutName(t *testing.T) {
	if IsAgent() {
		t.Error("a test is an agent")
	}
	if err := Main(); err == nil {
		t.Error("a test became an agent")
	}
}

// BenchmarkStart is the time until 100 agents are up, with nothing to configure.
func BenchmarkStart(b *testing.B) {
	const n = 100
	for b.Loop() {
		agents := make([]*Agent, n)
		up := make(chan error, n)
		for i := range agents {
			a, err := Start(Config{Lab: "l", Name: "n" + strconv.Itoa(i)}, nil, os.Stderr)
			if err != nil {
				b.Fatal(err)
			}
			agents[i] = a
			go func() { up <- a.Up(b.Context()) }()
		}
		for range agents {
			if err := <-up; err != nil {
				b.Fatal(err)
			}
		}
		b.StopTimer()
		for _, a := range agents {
			a.Kill()
		}
		for _, a := range agents {
			<-a.Done()
		}
		b.StartTimer()
	}
}

// TestStandsBack has the agent and its commands give way to others.
func TestStandsBack(t *testing.T) {
	a, _ := started(t, Config{Lab: "l", Name: "n"})
	out := filepath.Join(t.TempDir(), "out")
	f, err := os.Create(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if status, err := a.Exec(t.Context(), Command{Args: []string{"sh", "-c", "nice"}}, f, f); status != 0 || err != nil {
		t.Fatal(status, err)
	}
	ours, err := unix.Getpriority(unix.PRIO_PROCESS, 0) // 20 less the nice value
	if err != nil {
		t.Fatal(err)
	}
	// If ours is higher, only root of the host comes down to 5 again.
	got, err := os.ReadFile(out)
	if value := string(got); value != "5\n" && value != fmt.Sprintln(max(5, 20-ours)) || err != nil {
		t.Errorf("nice value %q, %v", got, err)
	}
}
