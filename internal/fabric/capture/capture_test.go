package capture

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The tests run in network and mount namespaces of their own, and a user namespace when
// not root: the test binary starts itself again in them.
const privateEnv = "NDKLAB_CAPTURE_TEST"

func TestMain(m *testing.M) {
	if os.Getenv(privateEnv) != "" {
		os.Exit(m.Run())
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), privateEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		os.Exit(exit.ExitCode())
	} else if err != nil { // no namespaces here: what needs them is skipped
		fmt.Fprintln(os.Stderr, "network namespaces:", err)
		os.Exit(m.Run())
	}
}

const (
	ourMAC   = "020000000001"
	theirMAC = "020000000002"
	segment  = 1000
	payload  = 4*segment + 321 // of the super-packet
)

// wire makes a veth pair, near and far. Packets to 10.0.0.2 leave through near
// and arrive at far, where nobody wants them.
func wire(t testing.TB) {
	t.Helper()
	if os.Getenv(privateEnv) == "" {
		t.Skip("needs a network namespace")
	}
	mac := func(s string) net.HardwareAddr {
		b, err := hex.DecodeString(s)
		must(t, err)
		return b
	}
	veth := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: "far", PeerHardwareAddr: mac(theirMAC)}
	veth.Name, veth.HardwareAddr = "near", mac(ourMAC)
	must(t, netlink.LinkAdd(veth))
	t.Cleanup(func() { must(t, netlink.LinkDel(veth)) })
	for _, name := range []string{"near", "far"} {
		must(t, os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/disable_ipv6", []byte("1"), 0))
		link, err := netlink.LinkByName(name)
		must(t, err)
		must(t, netlink.LinkSetUp(link))
	}
	near, err := netlink.LinkByName("near")
	must(t, err)
	must(t, netlink.AddrAdd(near, &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(10, 0, 0, 1), Mask: net.CIDRMask(24, 32)}}))
	must(t, netlink.NeighAdd(&netlink.Neigh{LinkIndex: near.Attrs().Index, State: netlink.NUD_PERMANENT, IP: net.IPv4(10, 0, 0, 2), HardwareAddr: mac(theirMAC)}))
}

// sendSuper sends one UDP super-packet and returns its payload.
func sendSuper(t *testing.T) []byte {
	t.Helper()
	conn := super(t, segment)
	defer conn.Close()
	b := make([]byte, payload)
	for i := range b {
		b[i] = byte(i * 7)
	}
	_, err := conn.WriteTo(b, &net.UDPAddr{IP: net.IPv4(10, 0, 0, 2), Port: 4791})
	must(t, err)
	return b
}

// super is a socket that sends super-packets with so many bytes of payload in each packet.
func super(t testing.TB, segment int) *net.UDPConn {
	t.Helper()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 49152})
	must(t, err)
	raw, err := conn.SyscallConn()
	must(t, err)
	must(t, raw.Control(func(fd uintptr) {
		must(t, unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT, segment))
		must(t, unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO))
	}))
	return conn
}

// wanted are the packets that the super-packet stands for, made from scratch.
func wanted(payload []byte) [][]byte {
	var all [][]byte
	for id := 0; len(payload) > 0; id++ {
		n := min(segment, len(payload))
		ip, err := hex.DecodeString("450000000000400040110000" + "0a0000010a000002")
		if err != nil {
			panic(err)
		}
		binary.BigEndian.PutUint16(ip[2:], uint16(28+n))
		binary.BigEndian.PutUint16(ip[4:], uint16(id)) // an unconnected socket with DF begins at 0
		binary.BigEndian.PutUint16(ip[10:], checksum(ip))
		udp := []byte{0xc0, 0x00, 0x12, 0xb7, byte((8 + n) >> 8), byte(8 + n), 0, 0}
		udp = append(udp, payload[:n]...)
		pseudo := append(append([]byte{}, ip[12:20]...), 0, 17, udp[4], udp[5])
		binary.BigEndian.PutUint16(udp[6:], checksum(append(pseudo, udp...)))
		ethernet, err := hex.DecodeString(theirMAC + ourMAC + "0800")
		if err != nil {
			panic(err)
		}
		all = append(all, append(append(ethernet, ip...), udp...))
		payload = payload[n:]
	}
	return all
}

func checksum(b []byte) uint16 {
	s := uint32(0)
	for i, v := range b {
		s += uint32(v) << (8 * (1 - i%2))
		s = s>>16 + s&0xffff
	}
	return ^uint16(s)
}

// record captures what is sent while f runs.
func record(t *testing.T, iface string, snaplen int, f func()) ([]byte, Counts) {
	t.Helper()
	return recordWith(t, iface, Options{Snaplen: snaplen}, f)
}

func recordWith(t *testing.T, iface string, options Options, f func()) ([]byte, Counts) {
	t.Helper()
	socket, err := Open(iface)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var file bytes.Buffer
	type outcome struct {
		counts Counts
		err    error
	}
	done := make(chan outcome)
	go func() {
		counts, err := Run(ctx, []Source{{Name: iface, Socket: socket}}, Stream(&file), options)
		done <- outcome{counts[0], err}
	}()
	f()
	cancel()
	o := <-done
	must(t, o.err)
	return file.Bytes(), o.counts
}

func TestSuperPacketsAreSplit(t *testing.T) {
	wire(t)
	for _, iface := range []string{"near", "far"} { // sent and received
		t.Run(iface, func(t *testing.T) {
			var sent []byte
			began := time.Now()
			file, counts := record(t, iface, 0, func() { sent = sendSuper(t) })
			want := wanted(sent)
			if counts != (Counts{Packets: uint64(len(want))}) {
				t.Errorf("counts %+v, want %d packets", counts, len(want))
			}
			packets, times := readBack(t, file)
			if len(packets) != len(want) {
				t.Fatalf("%d packets in the file, want %d", len(packets), len(want))
			}
			for i := range want {
				if diff := cmp.Diff(hex.Dump(want[i]), hex.Dump(packets[i])); diff != "" {
					t.Errorf("packet %d (-want +got):\n%s", i, diff)
				}
				if times[i].Before(began) || times[i].After(time.Now()) {
					t.Errorf("packet %d was captured at %v, sent after %v", i, times[i], began)
				}
			}
		})
	}
}

// A mark is with the first packet behind it, or at the end.
func TestMarks(t *testing.T) {
	wire(t)
	marks := make(chan Mark, 2)
	marks <- Mark{Stamp: 1, Text: "the first mark"}
	marks <- Mark{Stamp: 1 << 62, Text: "the last mark"}
	var sent []byte
	file, _ := recordWith(t, "near", Options{Marks: marks}, func() { sent = sendSuper(t) })
	first, second := wanted(sent)[0], wanted(sent)[1]
	for _, part := range [][]byte{first, []byte("the first mark"), second, []byte("the last mark")} {
		i := bytes.Index(file, part)
		if i < 0 {
			t.Fatalf("%.20q is not in its place", part)
		}
		file = file[i:]
	}
}

func TestSnapshotLength(t *testing.T) {
	wire(t)
	var sent []byte
	file, _ := record(t, "near", 60, func() { sent = sendSuper(t) })
	packets, _ := readBack(t, file)
	for i, want := range wanted(sent) {
		if !bytes.Equal(packets[i], want[:60]) {
			t.Errorf("packet %d: %d bytes, want the first 60 of the packet", i, len(packets[i]))
		}
	}
}

// readBack reads a capture with somebody else's reader.
func readBack(t *testing.T, file []byte) (packets [][]byte, times []time.Time) {
	t.Helper()
	r, err := pcapgo.NewNgReader(bytes.NewReader(file), pcapgo.DefaultNgReaderOptions)
	must(t, err)
	for {
		data, info, err := r.ReadPacketData()
		if err == io.EOF {
			return packets, times
		}
		must(t, err)
		packets, times = append(packets, data), append(times, info.Timestamp)
	}
}

func TestTsharkReadsIt(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("needs tshark")
	}
	wire(t)
	file, _ := record(t, "far", 0, func() { sendSuper(t) })
	path := filepath.Join(t.TempDir(), "far.pcapng")
	must(t, os.WriteFile(path, file, 0o600))
	cmd := exec.Command(tshark, "-n", "-r", path, "-T", "fields", "-E", "separator=,", "-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE",
		"-e", "frame.interface_name", "-e", "ip.id", "-e", "ip.len", "-e", "ip.checksum.status", "-e", "udp.checksum.status")
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir()) // nobody's preferences
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("tshark: %v\n%s", err, complaints.String())
	}
	// Status 1 is a good checksum.
	want := "far,0x0000,1028,1,1\nfar,0x0001,1028,1,1\nfar,0x0002,1028,1,1\nfar,0x0003,1028,1,1\nfar,0x0004,349,1,1\n"
	if diff := cmp.Diff(want, string(out)); diff != "" {
		t.Errorf("tshark prints (-want +got):\n%s", diff)
	}
}

// Many more packets than fit into the socket's buffer, and a reader that takes
// none of them until all are sent: the rest is dropped and counted.
func TestWhatIsNotWrittenInTimeIsCounted(t *testing.T) {
	wire(t)
	socket, err := Open("near")
	must(t, err)
	raw, err := socket.SyscallConn()
	must(t, err)
	must(t, raw.Control(func(fd uintptr) {
		must(t, unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 64<<10))
	}))
	const sent = 50
	for range sent {
		sendSuper(t)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var file bytes.Buffer
	all, err := Run(ctx, []Source{{Name: "near", Socket: socket}}, Stream(&file), Options{Snaplen: 64})
	must(t, err)
	counts := all[0]
	packets, _ := readBack(t, file.Bytes())
	perSuper := uint64(len(wanted(make([]byte, payload))))
	if counts.Packets == 0 || counts.Dropped == 0 || counts.Packets+counts.Dropped*perSuper != sent*perSuper || uint64(len(packets)) != counts.Packets {
		t.Errorf("counts %+v of %d super-packets of %d packets; %d in the file", counts, sent, perSuper, len(packets))
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestFailures(t *testing.T) {
	wire(t)
	if _, err := Open("nowhere"); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("unknown interface: %v", err)
	}
	socket, err := Open("near")
	must(t, err)
	sendSuper(t)
	if _, err := Run(context.Background(), []Source{{Name: "near", Socket: socket}}, Stream(brokenPipe{}), Options{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("writer that fails: %v", err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A packet for which there is no room on the way to a slow disk or reader is dropped
// and counted; with room again, the next one is written.
func TestSlowOutput(t *testing.T) {
	var file bytes.Buffer
	r := newRecorder([]Source{{Name: "near"}}, newChunks(1), Stream(&file), Options{})
	r.begin()
	var taken [][]byte
	for range bufferCount { // as if all were with a disk
		taken = append(taken, <-r.output.spare)
	}
	old := time.Now().Add(-time.Minute).UnixNano()
	for _, step := range []struct {
		size int
		room bool
		want Counts
	}{{bufferSize, false, Counts{Packets: 1}}, {60, false, Counts{Packets: 1, Dropped: 1}}, {60, true, Counts{Packets: 2, Dropped: 1}}} {
		if step.room {
			for _, b := range taken {
				r.output.spare <- b
			}
		}
		r.waiting[0].add(make([]byte, step.size), old).since = old
		if r.write(false); r.counts[0] != step.want {
			t.Errorf("counts %+v, want %+v", r.counts[0], step.want)
		}
	}
	must(t, r.end())
	if packets, _ := readBack(t, file.Bytes()); len(packets) != 2 {
		t.Errorf("%d packets in the file, want 2", len(packets))
	}
}
