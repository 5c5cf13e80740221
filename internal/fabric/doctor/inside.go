package doctor

import (
	"context"
	"encoding/json"
	"log"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/frame"
	"github.com/ndklab/ndklab/internal/fabric/lab/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The children of an examination, as argv[0] names them.
const (
	insidePart  = "ndklab-doctor inside"  // looks around in a lab's namespaces
	nothingPart = "ndklab-doctor nothing" // only shows that it could be started
)

// Child runs a part of an examination and exits, if that is what this process
// was started for; otherwise it returns at once.
func Child() {
	switch os.Args[0] {
	case nothingPart:
		os.Exit(0)
	case hostPart:
		if err := serveHost(); err != nil {
			log.Fatal(err)
		}
		os.Exit(0)
	case insidePart:
		// Our end is the end of everything that we make.
		time.AfterFunc(probeTime, func() { os.Exit(1) })
		if err := json.NewEncoder(os.Stdout).Encode(lookAround()); err != nil {
			log.Fatal(err)
		}
		os.Exit(0)
	}
}

// child is a part of an examination, ready to start.
func child(ctx context.Context, part string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args = []string{part}
	cmd.Dir = "/"
	cmd.WaitDelay = 10 * time.Second // also for what it has printed, once it has ended
	return cmd
}

// lookAround tries out, in a lab's namespaces, what a lab does there.
func lookAround() Inside {
	in := Inside{
		AppArmor: appArmorLabel(),
		Mounts:   attempt(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")),
		HostName: attempt(unix.Sethostname([]byte("ndklab-doctor"))),
		PIDFD:    attempt(openPIDFD()),
	}
	in.Proc = attempt(unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""))
	if in.Mounts.ok() {
		// Over the root, which there always is, and where nobody but this process looks.
		in.Mounts = attempt(unix.Mount("ndklab", "/", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"))
	}
	in.IPv6 = attempt(turnOffIPv6())
	in.Node = attempt(startNode())
	in.tryLink()
	in.tryUDP()
	in.RealTime = attempt(tryRealTime())
	return in
}

func openPIDFD() error {
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

func turnOffIPv6() error {
	err := os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0)
	if os.IsNotExist(err) { // a kernel without IPv6
		return nil
	}
	return err
}

// startNode starts a process in the namespaces that a node has.
func startNode() error {
	cmd := child(context.Background(), nothingPart)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWNS}
	return cmd.Run()
}

// tryLink makes a link both of whose ends are here, and what uses one.
func (in *Inside) tryLink() {
	network, err := link.Open()
	if err != nil {
		in.Veth = attempt(err)
		return
	}
	defer network.Close()
	const mtu = 4200
	ends := [2]link.End{{Network: link.NetworkOf(os.Getpid()), Interface: "end0"}, {Network: link.NetworkOf(os.Getpid()), Interface: "end1"}}
	if err := network.Make(0, mtu, ends); err != nil {
		in.Veth = attempt(err)
		return
	}
	in.Redirect = attempt(network.Join(0))
	in.Veth = attempt(network.Up(0))
	in.Netem = attempt(addNetem(ends[0].Interface))
	in.tryPacketSocket(link.Middle(0, 0))
}

// addNetem puts netem, which the kernel loads if it can, on an interface.
func addNetem(iface string) error {
	device, err := netlink.LinkByName(iface)
	if err != nil {
		return err
	}
	attrs := netlink.QdiscAttrs{LinkIndex: device.Attrs().Index, Parent: netlink.HANDLE_ROOT, Handle: netlink.MakeHandle(1, 0)}
	return netlink.QdiscAdd(netlink.NewNetem(attrs, netlink.NetemQdiscAttrs{Latency: 1000}))
}

func (in *Inside) tryPacketSocket(iface string) {
	fd, err := frame.Open(iface, false, wantedBuffer)
	if err != nil {
		in.Packet = attempt(err)
		return
	}
	defer unix.Close(fd)
	in.PacketBuffer, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
	in.Packet = attempt(err)
}

func (in *Inside) tryUDP() {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP)
	if err != nil {
		in.Segment = attempt(err)
		return
	}
	defer unix.Close(fd)
	in.Segment = attempt(unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_SEGMENT, 4096))
	in.Coalesce = attempt(unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_GRO, 1))
	// As provider/udp does it.
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, wantedBuffer/2) != nil {
		// The size that was granted is read back.
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, wantedBuffer/2)
	}
	if in.UDPBuffer, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF); err != nil {
		in.UDPBuffer = 0
	}
}

// tryRealTime asks for the priority that the link engine has. The thread is ours for
// good.
func tryRealTime() error {
	runtime.LockOSThread()
	return unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 1}, 0)
}
