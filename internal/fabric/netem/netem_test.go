package netem

import (
	"encoding/binary"
	"errors"
	"math"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/impair"
	"github.com/ndklab/ndklab/topology"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// The tests run in a network namespace of their own, and a user namespace when not
// root: the test binary starts itself again in them.
func TestMain(m *testing.M) {
	const inside = "NDKLAB_NETEM_TEST"
	if os.Getenv(inside) != "" {
		os.Exit(m.Run())
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	if err := cmd.Run(); err != nil {
		os.Exit(1)
	}
}

// newInterface makes a veth pair and is one end of it.
func newInterface(t *testing.T, wire bool) Interface {
	t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = "v0", 4200
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "v1"}); err != nil {
		t.Skipf("no veth to test with: %v", err)
	}
	device, err := netlink.LinkByName("v0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := netlink.LinkDel(device); err != nil {
			t.Error(err)
		}
	})
	return Interface{Index: device.Attrs().Index, MTU: 4200, Wire: wire}
}

// root is the root queue discipline of an interface.
func root(t *testing.T, i Interface) *netlink.Netem {
	t.Helper()
	all, err := netlink.QdiscList(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: i.Index}})
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range all {
		if n, ok := q.(*netlink.Netem); ok && n.Parent == netlink.HANDLE_ROOT {
			return n
		}
	}
	t.Fatalf("no netem among %v", all)
	return nil
}

// The kernel takes what it is given and has it, change after change; a kernel
// without netem says so.
func TestSet(t *testing.T) {
	i := newInterface(t, true)
	for n, s := range []topology.Impairment{
		{},
		{Delay: 10 * time.Millisecond, Jitter: topology.Jitter{Spread: time.Millisecond}, Loss: topology.Loss{Rate: 0.25}, Rate: 1e9},
		{Loss: topology.Loss{Rate: 0.1, Burst: 5}},
		{Delay: time.Minute, Rate: 400e9, Jitter: topology.Jitter{Spread: time.Second, Distribution: topology.Normal}},
		{Delay: time.Millisecond, Jitter: topology.Jitter{Spread: time.Millisecond, Distribution: topology.Pareto}},
		{},
	} {
		err := Set(i, s)
		if n == 0 && errors.Is(err, ErrMissing) {
			t.Skipf("%v: the tests of internal/fabric/interop run this in a virtual machine that has it", err)
		}
		if err != nil {
			t.Fatal(err)
		}
		q := root(t, i)
		independent := probability(s.Loss.Rate)
		if s.Loss.Burst > 0 {
			independent = 0
		}
		if got, want := chain(t, i), s.Loss; !sameChain(got, want) {
			t.Errorf("settings %d: bursts of loss by %x, want %+v", n, got, want)
		}
		if q.Handle != handle || q.Loss != independent || q.Limit != i.limit(s) || q.Rate64 != bytesPerSecond(s) {
			t.Errorf("settings %d: the kernel has %+v", n, q)
		}
		// The kernel also has them in ticks of 64 ns, of 32 bits.
		if want := uint32(min(int64(s.Delay)/64, math.MaxUint32)); q.Latency != want {
			t.Errorf("settings %d: a delay of %d, want %d", n, q.Latency, want)
		}
	}
}

// chain is the model of bursts of loss that an interface's netem has: p, r, h and k1
// of struct tc_netem_gemodel; nil if losses are independent.
func chain(t *testing.T, i Interface) []uint32 {
	t.Helper()
	req := nl.NewNetlinkRequest(unix.RTM_GETQDISC, unix.NLM_F_DUMP)
	req.AddData(&nl.TcMsg{Family: unix.AF_UNSPEC, Ifindex: int32(i.Index), Parent: netlink.HANDLE_ROOT})
	messages, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWQDISC)
	if err != nil {
		t.Fatal(err)
	}
	// within is the attribute of a type in others.
	within := func(attributes []byte, kind uint16) []byte {
		all, err := nl.ParseRouteAttr(attributes)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range all {
			if a.Attr.Type&^unix.NLA_F_NESTED == kind {
				return a.Value
			}
		}
		return nil
	}
	for _, m := range messages {
		header := nl.DeserializeTcMsg(m)
		if header.Ifindex != int32(i.Index) || header.Handle != handle {
			continue
		}
		options := within(m[header.Len():], nl.TCA_OPTIONS)
		b := within(within(options[nl.SizeofTcNetemQopt:], nl.TCA_NETEM_LOSS), lossGE)
		var values []uint32
		for ; len(b) >= 4; b = b[4:] {
			values = append(values, binary.NativeEndian.Uint32(b))
		}
		return values
	}
	t.Fatal("no netem")
	return nil
}

// sameChain reports whether a chain loses what is asked for: bursts of 1/r packets,
// p/(p+r) of all.
func sameChain(chain []uint32, asked topology.Loss) bool {
	if asked.Burst == 0 {
		return chain == nil
	}
	if len(chain) != 4 || chain[2] != 0 || chain[3] != 0 {
		return false
	}
	p, r := float64(chain[0]), float64(chain[1])
	return math.Abs(math.MaxUint32/r-asked.Burst) < 1e-6 && math.Abs(p/(p+r)-asked.Rate) < 1e-6
}

// The queue discipline that Probe tries is gone afterwards.
func TestProbe(t *testing.T) {
	const loopback = 1
	err := Probe(loopback)
	if errors.Is(err, ErrMissing) {
		t.Skipf("%v: the tests of internal/fabric/interop run this in a virtual machine that has it", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	left, err := netlink.QdiscList(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: loopback}})
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range left {
		if q.Type() == "netem" {
			t.Errorf("the interface still has %v", q)
		}
	}
}

// One processor has all that arrives, as the kernel has it then.
func TestKeepOrder(t *testing.T) {
	newInterface(t, true)
	const processor = 0
	if err := KeepOrder("v0", processor); errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOENT) {
		t.Skipf("%v: the tests of internal/fabric/interop run this in a virtual machine", err)
	} else if err != nil {
		t.Fatal(err)
	}
	sysfs, err := openSysfs()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(sysfs)
	fd, err := unix.Openat(sysfs, "class/net/v0/queues/rx-0/rps_cpus", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	b := make([]byte, 4096)
	n, err := unix.Read(fd, b)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := strconv.ParseUint(strings.ReplaceAll(strings.TrimSpace(string(b[:n])), ",", ""), 16, 64); err != nil || got != 1<<processor {
		t.Errorf("the kernel has %q (%v)", b[:n], err)
	}
	if err := KeepOrder("none", processor); err == nil {
		t.Error("order at an interface that does not exist")
	}
}

func TestMask(t *testing.T) {
	for processor, want := range map[int]string{0: "1", 5: "20", 31: "80000000", 32: "1,00000000", 69: "20,00000000,00000000"} {
		if got := mask(processor); got != want {
			t.Errorf("processor %d: %s, want %s", processor, got, want)
		}
	}
}

// A request of settings that the kernel refuses is no missing netem.
func TestSetRefused(t *testing.T) {
	i := newInterface(t, true)
	i.Index += 1000
	if err := Set(i, topology.Impairment{}); err == nil || errors.Is(err, ErrMissing) {
		t.Error(err)
	}
}

func TestTables(t *testing.T) {
	for _, c := range []struct {
		distribution    topology.Distribution
		deviation       float64
		least, most     float64
		meanTo, deviate float64 // how far off
	}{
		{topology.Uniform, 1 / math.Sqrt(3), -1, 1, 1e-4, 1e-3},
		{topology.Normal, 1, -4, 4, 1e-4, 1e-2},
		// Its tail is cut at four spreads.
		{topology.Pareto, 1, -1 / math.Sqrt(3), 4, 0.05, 0.27},
	} {
		b := table(c.distribution)
		var values []float64
		var sum, squares float64
		for n := range tableLen {
			v := float64(int16(binary.NativeEndian.Uint16(b[2*n:]))) / tableScale
			values = append(values, v)
			sum += v
			squares += v * v
		}
		mean := sum / tableLen
		deviation := math.Sqrt(squares/tableLen - mean*mean)
		if math.Abs(mean) > c.meanTo || math.Abs(deviation-c.deviation) > c.deviate {
			t.Errorf("%s: mean %.4f, deviation %.4f", c.distribution, mean, deviation)
		}
		if least, most := slices.Min(values), slices.Max(values); least < c.least-1e-3 || most > c.most+1e-3 || most < c.most*0.8 {
			t.Errorf("%s: from %.4f to %.4f", c.distribution, least, most)
		}
	}
	if a, b := table(""), table(topology.Uniform); !slices.Equal(a, b) {
		t.Error("uniform is not the default")
	}
}

// The kernel looks lengths up as here (net/sched/sch_api.c,
// __qdisc_calculate_pkt_len): up to the MTU they are those on a wire.
func TestSizes(t *testing.T) {
	for _, mtu := range []int{576, 1500, 4200, 9000, 31000, 65535} {
		attrs, err := nl.ParseRouteAttr(Interface{MTU: mtu}.sizes().Serialize()[unix.SizeofRtAttr:])
		if err != nil {
			t.Fatal(err)
		}
		spec, data := attrs[0].Value, attrs[1].Value
		if attrs[0].Attr.Type != stabBase || attrs[1].Attr.Type != stabData {
			t.Fatal(attrs)
		}
		n := int(binary.NativeEndian.Uint32(spec[20:]))
		if 2*n != len(data) || len(data) > math.MaxUint16-100 {
			t.Fatalf("MTU %d: %d sizes in %d bytes", mtu, n, len(data))
		}
		at := func(slot int) int { return int(binary.NativeEndian.Uint16(data[2*slot:])) }
		for length := range mtu + ethernet + 1 {
			got := 0
			if length < n {
				got = at(length)
			} else {
				got = at(n-1)*(length/n) + at(length%n)
			}
			want := impair.WireBytes(length)
			if off := math.Abs(float64(got - want)); off > 0 && (length < n || off > 0.003*float64(want)) {
				t.Fatalf("MTU %d: a frame of %d bytes counts as %d, want %d", mtu, length, got, want)
			}
		}
	}
}

func TestLimit(t *testing.T) {
	i := Interface{MTU: 4200}
	for _, c := range []struct {
		settings    topology.Impairment
		least, most uint32
	}{
		{topology.Impairment{}, 60_000, 64_000},                                      // 256 MiB
		{topology.Impairment{Rate: 1e9}, 1474, 1480},                                 // 50 ms
		{topology.Impairment{Rate: 10e6}, 989, 990},                                  // 4 MiB
		{topology.Impairment{Rate: 1e9, Delay: 100 * time.Millisecond}, 4420, 4430},  // and 100 ms more
		{topology.Impairment{Rate: 1e9, Queue: topology.Queue{Packets: 10}}, 10, 10}, // as it says
		{topology.Impairment{Rate: 1e12, Delay: time.Minute}, 60_000, 64_000},        // memory
	} {
		if got := i.limit(c.settings); got < c.least || got > c.most {
			t.Errorf("%+v: %d packets, want %d to %d", c.settings, got, c.least, c.most)
		}
	}
}
