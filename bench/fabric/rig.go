package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/lab/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

func init() {
	programs["rig"] = rigProgram
	programs["end"] = endProgram
}

// rigParts are the parts that run in a rig.
var rigParts = map[string]func(context.Context, *bench, *rig){
	"passage": passage,
	"fate":    fate,
}

// A rig is a link such as labs have, but of namespaces that nothing else is in:
// neither agents nor IPv6, so that no packet crosses but those of the probes. The part
// chooses what carries the packets. The rig runs in a process in a network namespace of
// its own, where the link's middles are.
type rig struct {
	network *link.Network
	ends    [2]*end
	a, b    place
}

// inRig returns a part that runs in a rig, in a process of its own, which passes on the
// rows.
func inRig(name string) func(context.Context, *bench) {
	return func(ctx context.Context, b *bench) {
		if err := b.runRig(ctx, name); err != nil {
			b.report(Row{Part: name, Engine: b.engine, What: "in namespaces of its own", Got: "not measured", Error: err.Error()})
		}
	}
}

func (b *bench) runRig(ctx context.Context, name string) error {
	cmd := exec.CommandContext(ctx, self, programArg, "rig", name)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	input, err := cmd.StdinPipe() // whose end ends it
	if err != nil {
		return err
	}
	rows, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer input.Close()
	decoder := json.NewDecoder(rows)
	for {
		var row Row
		err := decoder.Decode(&row)
		if err == io.EOF {
			return cmd.Wait()
		}
		if err != nil {
			return errors.Join(err, cmd.Wait())
		}
		b.report(row)
	}
}

// rigProgram runs the process of a rig. It prints one row of the part after the other.
func rigProgram(args []string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := inputEnd()
	go func() { <-ended; cancel() }()
	r, err := newRig(ctx)
	if err != nil {
		return err
	}
	defer r.close()
	encoder := json.NewEncoder(os.Stdout)
	b := &bench{engine: "linkem", pace: full}
	b.report = func(row Row) {
		// The reader is this process's reason to be: without it, it is about to end.
		_ = encoder.Encode(row)
	}
	rigParts[args[0]](ctx, b, r)
	return nil
}

func newRig(ctx context.Context) (_ *rig, err error) {
	r := &rig{}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	if err := withoutIPv6(); err != nil {
		return nil, err
	}
	if r.network, err = link.Open(); err != nil {
		return nil, err
	}
	var ends [2]link.End
	for i := range r.ends {
		if r.ends[i], err = startEnd(ctx, i); err != nil {
			return nil, err
		}
		ends[i] = link.End{Network: link.NetworkOf(r.ends[i].Process.Pid), Interface: iface}
	}
	if err := r.network.Make(0, mtu, ends); err != nil {
		return nil, err
	}
	if err := r.network.Up(0); err != nil {
		return nil, err
	}
	for i, p := range []*place{&r.a, &r.b} {
		if err := r.ends[i].configure(); err != nil {
			return nil, err
		}
		ns, err := netns.GetFromPath(fmt.Sprintf("/proc/%d/ns/net", r.ends[i].Process.Pid))
		if err != nil {
			return nil, err
		}
		*p = inNamespace(ns)
	}
	for settled := false; !settled; {
		if settled, err = r.network.Settled(0); err != nil {
			return nil, err
		}
		if err := pause(ctx, time.Millisecond); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func withoutIPv6() error {
	for _, which := range []string{"default", "all"} {
		err := os.WriteFile("/proc/sys/net/ipv6/conf/"+which+"/disable_ipv6", []byte("1"), 0)
		if err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return nil
}

func (r *rig) close() {
	for _, e := range r.ends {
		if e != nil {
			e.input.Close()
			_ = e.Wait() // the namespace goes, however it ended
		}
	}
	if r.network != nil {
		r.network.Close()
	}
}

// An end is the process that has the namespace of an end of a rig.
type end struct {
	*exec.Cmd
	input  io.WriteCloser
	output *bufio.Reader
}

func startEnd(ctx context.Context, number int) (*end, error) {
	e := &end{Cmd: exec.CommandContext(ctx, self, programArg, "end", fmt.Sprint(number))}
	e.Stderr = os.Stderr
	e.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	input, err := e.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := e.StdoutPipe()
	if err != nil {
		return nil, err
	}
	e.input, e.output = input, bufio.NewReader(output)
	return e, e.Start()
}

// configure has the end configure its interface, which exists by now.
func (e *end) configure() error {
	if _, err := fmt.Fprintln(e.input); err != nil {
		return err
	}
	_, err := e.output.ReadString('\n')
	return err
}

// endProgram NUMBER configures the interface when it is given a line, and then says
// one.
func endProgram(args []string) error {
	number, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	if err := configureEnd(number); err != nil {
		return err
	}
	fmt.Println("ready")
	_, _ = in.ReadString('\n') // its end is ours
	return nil
}

func configureEnd(number int) error {
	if err := withoutIPv6(); err != nil {
		return err
	}
	device, err := netlink.LinkByName(iface)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(device); err != nil {
		return err
	}
	if err := netlink.AddrAdd(device, &netlink.Addr{IPNet: &net.IPNet{
		IP: addresses[number].AsSlice(), Mask: net.CIDRMask(24, 32)}}); err != nil {
		return err
	}
	// No ARP either.
	return netlink.NeighSet(&netlink.Neigh{
		LinkIndex: device.Attrs().Index, State: netlink.NUD_PERMANENT,
		IP: addresses[1-number].AsSlice(), HardwareAddr: link.MAC(0, 1-number),
	})
}

// inNamespace returns the place of a network namespace.
func inNamespace(ns netns.NsHandle) place {
	return func(ctx context.Context, args []string, stdin, stdout, stderr *os.File) error {
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
		started := make(chan error)
		go func() {
			runtime.LockOSThread() // and the thread ends with the goroutine
			if err := netns.Set(ns); err != nil {
				started <- err
				return
			}
			started <- cmd.Start() // on this thread
		}()
		if err := <-started; err != nil {
			return err
		}
		if err := cmd.Wait(); err != nil && ctx.Err() == nil {
			return err
		}
		return nil
	}
}
