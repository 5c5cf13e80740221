package lab

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/relay"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/topology"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The process outside, and the node that it is joined to.
const (
	outsideName  = "tap0"
	outsideAddr  = "10.200.0.2"
	insideAddr   = "10.200.0.1"
	outsidePort  = 5001
	outsideDelay = time.Millisecond // one way, in the tests that have one
)

// withExternal joins n0 of a lab to an external as well.
func withExternal(topo *topology.Topology) *topology.Topology {
	face := func(name string, end int, address string) topology.Interface {
		return topology.Interface{Name: name, Link: len(topo.Links), End: end, Addresses: []netip.Prefix{netip.MustParsePrefix(address + "/24")}}
	}
	topo.Nodes[0].Interfaces = append(topo.Nodes[0].Interfaces, face("out0", 0, insideAddr))
	topo.Externals = append(topo.Externals, face(outsideName, 1, outsideAddr))
	topo.Links = append(topo.Links, topology.Link{
		Endpoints: [2]topology.Endpoint{{Node: "n0", Interface: "out0"}, {Node: "external", Interface: outsideName}}, Number: len(topo.Links), MTU: 1500, Offload: true,
	})
	return topo
}

func init() { programs["outsider"] = outsider }

// An outside is a whole network stack, in a process that has no part in the
// lab: it speaks to it through the sockets alone. It answers ARP, and echoes UDP
// of any port but outsidePort.
type outside struct {
	lab    *net.UnixAddr
	sock   *net.UnixConn
	node   net.HardwareAddr // of insideAddr; nil until it has told
	echoed chan time.Time   // when echoes arrived at outsidePort
	bulk   chan int         // payload bytes that arrived at port 5000
}

var outsideMAC = net.HardwareAddr{0x52, 0x54, 0, 0, 0, 1}

// outsider DIRECTORY says "attached" once it has its socket. Then every line of
// its input is one of
//
//	ping TIME asks the node's echo server, and says how many microseconds it took, or
//	          "lost" after that time
//	bulk N    receives so many bytes, and says "whole"
func outsider(args []string) error {
	peer := filepath.Join(args[0], relay.PeerSocket(outsideName))
	if err := os.Remove(peer); err != nil && !errors.Is(err, os.ErrNotExist) { // of one that was killed
		return err
	}
	sock, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: peer})
	if err != nil {
		return err
	}
	o := &outside{
		lab:    &net.UnixAddr{Net: "unixgram", Name: filepath.Join(args[0], relay.Socket(outsideName))},
		sock:   sock,
		echoed: make(chan time.Time, 1), bulk: make(chan int, 1000),
	}
	resolved := make(chan net.HardwareAddr, 1)
	go o.receive(resolved)
	fmt.Println("attached")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		words := strings.Fields(in.Text())
		switch words[0] {
		case "ping":
			limit, err := time.ParseDuration(words[1])
			if err != nil {
				return err
			}
			if o.node == nil {
				if err := o.arp(layers.ARPRequest, make([]byte, 6), netip.MustParseAddr(insideAddr).AsSlice()); err != nil {
					return err
				}
				select {
				case o.node = <-resolved:
				case <-time.After(testTime):
					return errors.New("no answer to ARP")
				}
			}
			begin := time.Now()
			if err := o.udp(o.node, outsidePort, outsidePort, []byte("ping")); err != nil {
				return err
			}
			select {
			case at := <-o.echoed:
				fmt.Println(at.Sub(begin).Microseconds())
			case <-time.After(limit):
				fmt.Println("lost")
			}
		case "bulk":
			n, err := strconv.Atoi(words[1])
			if err != nil {
				return err
			}
			late := time.After(testTime)
			for n > 0 {
				select {
				case k := <-o.bulk:
					n -= k
				case <-late:
					return fmt.Errorf("%d bytes of %s are missing", n, words[1])
				}
			}
			fmt.Println("whole")
		}
	}
	return in.Err()
}

// receive takes frames. A frame that is not as it must be on a wire ends the process.
func (o *outside) receive(resolved chan<- net.HardwareAddr) {
	buffer := make([]byte, 1<<16)
	for {
		n, err := o.sock.Read(buffer)
		if err == nil && n > 1500+14 {
			err = fmt.Errorf("a frame of %d bytes", n)
		}
		if err == nil {
			err = o.take(append([]byte(nil), buffer[:n]...), resolved)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func (o *outside) take(frame []byte, resolved chan<- net.HardwareAddr) error {
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
	if arp, ok := p.Layer(layers.LayerTypeARP).(*layers.ARP); ok {
		if net.IP(arp.DstProtAddress).String() != outsideAddr {
			return nil
		}
		if arp.Operation == layers.ARPReply {
			resolved <- arp.SourceHwAddress
			return nil
		}
		return o.arp(layers.ARPReply, arp.SourceHwAddress, arp.SourceProtAddress)
	}
	ip, isIP := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
	udp, isUDP := p.Layer(layers.LayerTypeUDP).(*layers.UDP)
	if !isIP || !isUDP || ip.DstIP.String() != outsideAddr {
		return nil
	}
	// Written again, with its checksums computed, it must be the same.
	got := append([]byte(nil), frame...)
	ether := p.Layer(layers.LayerTypeEthernet).(*layers.Ethernet)
	want, err := serialize(ether, ip, udp, udp.Payload)
	if err != nil {
		return err
	}
	if want = want[:min(len(want), len(got))]; string(got) != string(want) { // which was padded to 60 bytes
		return fmt.Errorf("checksums are wrong in %x, want %x", got, want)
	}
	switch {
	case udp.DstPort == 5000:
		o.bulk <- len(udp.Payload)
	case udp.DstPort == outsidePort && string(udp.Payload) == "ping":
		o.echoed <- time.Now()
	default:
		return o.udp(ether.SrcMAC, udp.DstPort, udp.SrcPort, udp.Payload)
	}
	return nil
}

func (o *outside) arp(operation uint16, mac net.HardwareAddr, address []byte) error {
	to := mac
	if operation == layers.ARPRequest {
		to = layers.EthernetBroadcast
	}
	return o.send(&layers.Ethernet{SrcMAC: outsideMAC, DstMAC: to, EthernetType: layers.EthernetTypeARP},
		&layers.ARP{
			AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4, Operation: operation,
			SourceHwAddress: outsideMAC, SourceProtAddress: netip.MustParseAddr(outsideAddr).AsSlice(), DstHwAddress: mac, DstProtAddress: address,
		})
}

func (o *outside) udp(to net.HardwareAddr, from, port layers.UDPPort, payload []byte) error {
	ether := &layers.Ethernet{SrcMAC: outsideMAC, DstMAC: to, EthernetType: layers.EthernetTypeIPv4}
	ip := &layers.IPv4{Version: 4, IHL: 5, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: net.ParseIP(outsideAddr), DstIP: net.ParseIP(insideAddr)}
	frame, err := serialize(ether, ip, &layers.UDP{SrcPort: from, DstPort: port}, payload)
	if err != nil {
		return err
	}
	_, err = o.sock.WriteTo(frame, o.lab)
	return err
}

func serialize(ether *layers.Ethernet, ip *layers.IPv4, udp *layers.UDP, payload []byte) ([]byte, error) {
	buffer := gopacket.NewSerializeBuffer()
	if err := udp.SetNetworkLayerForChecksum(ip); err != nil {
		return nil, err
	}
	err := gopacket.SerializeLayers(buffer, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, ether, ip, udp, gopacket.Payload(payload))
	return buffer.Bytes(), err
}

func (o *outside) send(all ...gopacket.SerializableLayer) error {
	buffer := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buffer, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, all...); err != nil {
		return err
	}
	_, err := o.sock.WriteTo(buffer.Bytes(), o.lab)
	return err
}

// attach starts an outsider, as a process that only knows the sockets' directory.
func attach(t testing.TB, x report.External) *command {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env, cmd.Stderr = programEnv("outsider "+filepath.Dir(x.Socket)), os.Stderr
	c := startProcess(t, cmd)
	if line, err := c.out.ReadString('\n'); line != "attached\n" {
		t.Fatal(line, err)
	}
	return c
}

// ask has an outsider do something and returns its answer.
func (c *command) ask(t testing.TB, request string) string {
	t.Helper()
	if _, err := c.stdin.Write([]byte(request + "\n")); err != nil {
		t.Fatal(err)
	}
	line, err := c.out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// ping has an outsider ask the node's echo server.
func (c *command) ping(t testing.TB, limit time.Duration) string {
	t.Helper()
	return c.ask(t, fmt.Sprintf("ping %v", limit))
}

// onlyExternal returns the state of the lab's external.
func onlyExternal(t testing.TB, l *Lab) report.External {
	t.Helper()
	in, err := l.Inspect(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(in.Externals) != 1 {
		t.Fatalf("externals %+v, want one", in.Externals)
	}
	return in.Externals[0]
}

// A process outside exchanges frames with a node as over a wire: it finds the
// node by ARP and the node it, every frame is whole, and the link's impairments
// apply. Another process can take the place of one that is killed.
func TestExternalSockets(t *testing.T) {
	topo := withExternal(ring(uniqueName(t), 1))
	for d := range topo.Links[0].Directions {
		topo.Links[0].Directions[d].Delay = outsideDelay
	}
	l := start(t, topo)
	x := onlyExternal(t, l)
	if x.Endpoint != "external:tap0" || x.MTU != 1500 || len(x.Addresses) != 1 || x.Addresses[0] != outsideAddr+"/24" {
		t.Errorf("external %+v", x)
	}
	if got := program(t, l, "n0", fmt.Sprintf("echo %d", outsidePort)).line(t); got != "bound" {
		t.Fatal(got)
	}
	pinger := pinging{program(t, l, "n0", "ping "+outsideAddr+":7")}
	const roundTrip = 2 * outsideDelay
	check := func(who, took string) {
		t.Helper()
		if us, err := strconv.Atoi(took); err != nil || us < int(roundTrip.Microseconds()) {
			t.Errorf("an echo from %s took %s us, want %d at least", who, took, roundTrip.Microseconds())
		}
	}
	for range 2 {
		o := attach(t, x)
		check("the node", o.ping(t, echoTime))
		check("outside", pinger.roundTrip(t))
		program(t, l, "n0", "send "+outsideAddr+":5000 1 10 1400").wait(t) // one super-packet
		if got := o.ask(t, "bulk 14000"); got != "whole" {
			t.Error(got)
		}
		if err := o.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-o.ended
	}
	for d := range 2 {
		if a := direction(t, l, d).Achieved.DelayUS; a == nil || *a < float64(outsideDelay.Microseconds()) {
			t.Errorf("direction %d: achieved delay %v, want %v at least", d, a, outsideDelay)
		}
	}
	after := onlyExternal(t, l)
	if after.ToPeer < 24 || after.FromPeer < 6 || after.Lost != 0 {
		t.Errorf("external %+v", after)
	}
}

// A plain link ends outside the lab just as well, and is taken over by the engine
// and given back there.
func TestExternalSetLink(t *testing.T) {
	l := start(t, withExternal(ring(uniqueName(t), 1)))
	if got := program(t, l, "n0", fmt.Sprintf("echo %d", outsidePort)).line(t); got != "bound" {
		t.Fatal(got)
	}
	o := attach(t, onlyExternal(t, l))
	loss, none := topology.Loss{Rate: 1}, topology.Loss{}
	for _, step := range []struct {
		change topology.Change
		from   string
		engine string
		lost   bool
	}{
		{topology.Change{}, "", "plain", false},
		{topology.Change{Loss: &loss}, "external", "linkem", true},
		{topology.Change{Loss: &none}, "external", "plain", false},
		{topology.Change{Loss: &loss}, "n0", "linkem", true},
	} {
		if err := l.Links.Set(testContext(t), "external:tap0", step.from, step.change); err != nil {
			t.Fatal(err)
		}
		awaitEngine(t, l, step.engine)
		limit := echoTime
		if step.lost {
			limit = lossTime
		}
		if got := o.ping(t, limit); (got == "lost") != step.lost {
			t.Errorf("%+v: echo %s", step, got)
		}
	}
}

// A frame that nobody takes is counted and dropped; so is one that cannot be
// sent.
func TestExternalCounts(t *testing.T) {
	l := start(t, withExternal(ring(uniqueName(t), 1)))
	pinger := pinging{program(t, l, "n0", "ping "+outsideAddr+":7")}
	pinger.send(t, lossTime)
	x := onlyExternal(t, l)
	eventually(t, testTime, func() string { // ARP at least
		if onlyExternal(t, l).NoPeer == 0 {
			return "no frame was counted that had no peer"
		}
		return ""
	})
	if got := pinger.line(t); got != "lost" {
		t.Errorf("an echo from nobody: %s", got)
	}
	conn, err := net.Dial("unixgram", x.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, size := range []int{0, 13, 1515} {
		if _, err := conn.Write(make([]byte, size)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := conn.Write(make([]byte, 1514)); err != nil {
		t.Fatal(err)
	}
	eventually(t, testTime, func() string {
		if x = onlyExternal(t, l); x.FromPeer < 1 || x.Lost < 3 {
			return fmt.Sprintf("%+v", x)
		}
		return ""
	})
	if x.FromPeer != 1 || x.Lost != 3 {
		t.Errorf("%+v, want 1 frame from the peer and 3 lost", x)
	}
	wantNames(t, x)
	// Of a link that ends outside the lab, probes can tell nothing.
	_, err = l.Links.Verify(testContext(t), "n0:out0", Probes{})
	wantCode(t, err, control.Usage)
	if err == nil || !strings.Contains(err.Error(), "outside the lab") {
		t.Error(err)
	}
}

// For root the external is a network namespace with a name, in which any program
// is on the link.
func TestExternalNamespace(t *testing.T) {
	topo := withExternal(ring(uniqueName(t), 1))
	l := start(t, topo)
	x := onlyExternal(t, l)
	if os.Geteuid() != 0 {
		if x.Namespace != "" {
			t.Errorf("namespace %s, want none for an ordinary user", x.Namespace)
		}
		return
	}
	if want := topo.Name + ".tap0"; x.Namespace != want {
		t.Errorf("namespace %s, want %s", x.Namespace, want)
	}
	if got := program(t, l, "n0", fmt.Sprintf("echo %d", outsidePort)).line(t); got != "bound" {
		t.Fatal(got)
	}
	for _, path := range []string{filepath.Join(namesDir, x.Namespace), x.NamespacePath} {
		answer := make(chan error)
		go func() {
			runtime.LockOSThread() // for good: the thread ends with the goroutine
			answer <- echoFrom(path)
		}()
		if err := <-answer; err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	second := withExternal(ring(topo.Name+"-2", 1))
	if err := os.Symlink("/nowhere", filepath.Join(namesDir, second.Name+".tap0")); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(filepath.Join(namesDir, second.Name+".tap0"))
	_, err := Start(testContext(t), second, Options{})
	wantCode(t, err, control.Usage)
}

// echoFrom enters a namespace, is outsideAddr there, and asks the node's echo
// server.
func echoFrom(path string) error {
	ns, err := os.Open(path)
	if err != nil {
		return err
	}
	defer ns.Close()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return err
	}
	if err := setAddress(outsideName, outsideAddr); err != nil {
		return err
	}
	conn, err := net.Dial("udp", net.JoinHostPort(insideAddr, strconv.Itoa(outsidePort)))
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(testTime)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("hello")); err != nil {
		return err
	}
	buf := make([]byte, 16)
	n, err := conn.Read(buf)
	if err == nil && string(buf[:n]) != "hello" {
		err = fmt.Errorf("echo %q", buf[:n])
	}
	return err
}

// setAddress gives an interface of the thread's namespace an IPv4 address of a
// /24, instead of any other.
func setAddress(iface, address string) error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	device, err := h.LinkByName(iface)
	if err != nil {
		return err
	}
	return h.AddrReplace(device, &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(address), Mask: net.CIDRMask(24, 32)}})
}

// The description of an external has the names that are promised.
func wantNames(t *testing.T, x report.External) {
	t.Helper()
	data, err := json.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"endpoint", "mtu", "addresses", "namespace_path", "socket", "peer_socket", "to_peer", "from_peer", "no_peer", "lost"} {
		if _, ok := fields[name]; !ok {
			t.Errorf("no %s in %s", name, data)
		}
	}
}
