package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/relay"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/node"
	"github.com/ndklab/ndklab/topology"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// An external is a link's end outside the lab: an interface in a network
// namespace of its own, in which nothing of the lab runs. A program outside enters
// the namespace (with a tap, a bridge, a capture tool) or exchanges frames over
// Unix sockets with the relay that the engine has for it; see package relay.
//
// The namespace is bound to a file in the supervisor's mount namespace. The host
// reaches that through the supervisor's root directory in /proc. For ip netns, a
// link in /run/netns leads there: once the lab is gone it leads nowhere.
//
// In a lab over several hosts an external is at the host of its node, whose part has the supervisor's place. The sockets
// are in memory of the part's, too, and not in the host's state directory, so that none is left when the host's processes
// are killed.
type external struct {
	namespace *os.File
	path      string // of the namespace, as the host reaches it
	name      string // of the link in /run/netns; "" for ordinary users, who may not make one
}

// namesDir is the folder in which ip netns looks for namespaces (ip-netns(8)).
const namesDir = "/run/netns"

// externalDir is the directory of the sockets of a lab's externals.
func (p place) externalDir() string { return filepath.Join(p.dir, p.name+externalSuffix) }

// namespaceDir returns the folder in which the namespaces of externals are bound, each to
// a file with the interface's name, in the supervisor's mount namespace.
func (p place) namespaceDir() string { return filepath.Join(p.dir, "ns", p.name) }

// externalsHere returns the externals whose nodes are on this machine.
func (d *linkDriver) externalsHere(topo *topology.Topology) (here []topology.Interface) {
	for _, x := range topo.Externals {
		if !d.isFar(topo.Links[x.Link].Endpoints[1-x.End].Node) {
			here = append(here, x)
		}
	}
	return here
}

// openExternalDir makes the directory for the sockets of externals, if there are any. Where that is in the state directory
// itself it is called before this is covered.
func (d *linkDriver) openExternalDir(topo *topology.Topology) (err error) {
	here := d.externalsHere(topo)
	if len(here) == 0 {
		return nil
	}
	p := d.place
	for _, x := range here {
		// struct sockaddr_un has 108 bytes, with a final zero. We need fewer.
		if path := d.socketPath(relay.PeerSocket(x.Name)); len(path) > 107 {
			d.publish(event.Event{Kind: event.Warning, Text: fmt.Sprintf("the path %s has %d bytes, a socket's may have 107: use it from within its directory, or %s with a shorter path", path, len(path), elsewhere)})
		}
	}
	remove := p.removeExternals
	if d.root != "" { // another part of the lab may be on this machine
		remove = p.removeDeadNames
	}
	if err := remove(); err != nil { // of a lab that was killed
		return err
	}
	if err := os.Mkdir(p.externalDir(), 0o700); err != nil {
		return noState("directory for sockets", err)
	}
	d.sockets, err = os.Open(p.externalDir())
	return err
}

// rootOf returns the path by which the host reaches the root directory of this process.
func rootOf(hostProc *os.File) (string, error) {
	pid, err := node.PIDIn(hostProc, os.Getpid())
	if err != nil {
		return "", err
	}
	return "/proc/" + strconv.Itoa(pid) + "/root", nil
}

// socketPath returns the path of a socket of externals, as the host reaches it.
func (d *linkDriver) socketPath(name string) string {
	return filepath.Join(d.root, d.place.externalDir(), name)
}

// makeExternals makes the namespaces of externals.
func (d *linkDriver) makeExternals(topo *topology.Topology, hostProc *os.File) error {
	here := d.externalsHere(topo)
	if len(here) == 0 {
		return nil
	}
	root, err := rootOf(hostProc)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(d.place.namespaceDir(), 0o755); err != nil {
		return err
	}
	for _, spec := range here {
		file := filepath.Join(d.place.namespaceDir(), spec.Name)
		x := &external{path: root + file}
		if x.namespace, err = newNamespace(file); err != nil {
			return fmt.Errorf("namespace of external:%s: %w", spec.Name, err)
		}
		if d.named {
			x.name = d.place.name + "." + spec.Name
			if err := nameNamespace(x.name, x.path); err != nil {
				return err
			}
		}
		d.externals[spec.Name] = x
	}
	return nil
}

// newNamespace makes a network namespace and binds it to a file.
func newNamespace(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return nil, err
	}
	file.Close()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		done <- enterNewNamespace(path)
	}()
	if err := <-done; err != nil {
		return nil, err
	}
	return os.Open(path)
}

// enterNewNamespace moves the thread to a network namespace of its own, in which
// the kernel itself says nothing on interfaces: it gives them no IPv6 address.
func enterNewNamespace(path string) error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if err := unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s: %w", path, err)
	}
	const none = "1" // IN6_ADDR_GEN_MODE_NONE
	err := os.WriteFile("/proc/sys/net/ipv6/conf/default/addr_gen_mode", []byte(none), 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // there is none in a kernel without IPv6
		return control.Errorf(control.Unable, "keep IPv6 quiet: %v", err)
	}
	return nil
}

// nameNamespace gives a namespace a name for ip netns.
func nameNamespace(name, path string) error {
	if err := os.Mkdir(namesDir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return noState("directory for ip netns", err)
	}
	err := os.Symlink(path, filepath.Join(namesDir, name))
	if errors.Is(err, fs.ErrExist) {
		return control.Errorf(control.Usage, "a network namespace with the name %s exists already (%s)", name, namesDir)
	}
	if err != nil {
		return noState("name for ip netns", err)
	}
	return nil
}

// removeExternals removes what the externals of a lab that is over left: their
// sockets' directory and their names.
func (p place) removeExternals() error {
	return errors.Join(os.RemoveAll(p.externalDir()), p.removeNames(func(string) bool { return true }))
}

// removeDeadNames removes the names of those of the lab's externals whose part is over.
func (p place) removeDeadNames() error {
	return p.removeNames(func(path string) bool {
		_, err := os.Stat(path)
		return errors.Is(err, fs.ErrNotExist)
	})
}

// removeNames removes the names of the lab's externals that over chooses.
func (p place) removeNames(over func(path string) bool) error {
	names, problems := p.externalNames()
	for _, path := range names {
		if !over(path) {
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			problems = errors.Join(problems, err)
		}
	}
	return problems
}

// externalNames are the links that give the lab's externals names.
func (p place) externalNames() ([]string, error) {
	all, err := externalNames()
	var ours []string
	for _, x := range all {
		if x.dir == p.dir && x.lab == p.name {
			ours = append(ours, x.path)
		}
	}
	return ours, err
}

// An externalName is a link that gives an external's namespace a name for ip netns.
type externalName struct {
	path     string
	dir, lab string // of whose external it is
}

// externalNames are all links to externals of labs, whosever. The link's name does not
// tell whose, since interfaces may have dots in theirs; the path that it leads to does.
func externalNames() ([]externalName, error) {
	entries, err := os.ReadDir(namesDir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil, nil
	}
	var found []externalName
	for _, e := range entries {
		if e.Type() != fs.ModeSymlink {
			continue
		}
		path := filepath.Join(namesDir, e.Name())
		target, err := os.Readlink(path)
		if err != nil {
			continue // it has just been removed
		}
		// /proc/PID/root DIR /ns/ LAB / INTERFACE
		pid, file, ok := strings.Cut(strings.TrimPrefix(target, "/proc/"), "/root/")
		if _, err := strconv.Atoi(pid); !ok || err != nil {
			continue
		}
		namespaces, iface := filepath.Split("/" + file)
		dir, lab := filepath.Split(filepath.Clean(namespaces))
		if e.Name() == lab+"."+iface && filepath.Base(dir) == "ns" {
			found = append(found, externalName{path, filepath.Dir(filepath.Clean(dir)), lab})
		}
	}
	return found, err
}

// configureExternals sets up the interfaces of externals, and has the engine
// relay what crosses them.
func (d *linkDriver) configureExternals(ctx context.Context, topo *topology.Topology) error {
	for _, spec := range d.externalsHere(topo) {
		if err := d.configureExternal(ctx, spec.Name); err != nil {
			return fmt.Errorf("external:%s: %w", spec.Name, err)
		}
	}
	return nil
}

func (d *linkDriver) configureExternal(ctx context.Context, external string) error {
	namespace := d.externals[external].namespace
	h, err := netlink.NewHandleAt(netns.NsHandle(namespace.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	defer h.Close()
	for _, name := range []string{"lo", external} {
		iface, err := h.LinkByName(name)
		if err == nil {
			err = h.LinkSetUp(iface)
		}
		if err != nil {
			return fmt.Errorf("set %s up: %w", name, err)
		}
	}
	engine, err := d.engine.start()
	if err != nil {
		return err
	}
	packets, err := relay.OpenInterface(namespace, external)
	if err != nil {
		return err
	}
	defer packets.Close()
	if err := engine.Relay(ctx, external, packets, d.sockets); err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	return nil
}

// inspectExternals returns the state of every external on this machine, in the order of the links.
func (d *linkDriver) inspectExternals(ctx context.Context, topo *topology.Topology) ([]report.External, error) {
	found, here := []report.External{}, d.externalsHere(topo)
	if len(here) == 0 {
		return found, nil
	}
	counts, err := d.engine.current().Relays(ctx)
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	for _, spec := range here {
		l, x, n := topo.Links[spec.Link], d.externals[spec.Name], counts[spec.Name]
		r := report.External{
			Endpoint:      l.Endpoints[spec.End].String(),
			MTU:           l.MTU,
			Addresses:     []string{},
			Namespace:     x.name,
			NamespacePath: x.path,
			Socket:        d.socketPath(relay.Socket(spec.Name)),
			PeerSocket:    d.socketPath(relay.PeerSocket(spec.Name)),
			ToPeer:        n.ToPeer, FromPeer: n.FromPeer, NoPeer: n.NoPeer, Lost: n.Lost,
		}
		for _, a := range spec.Addresses {
			r.Addresses = append(r.Addresses, a.String())
		}
		found = append(found, r)
	}
	return found, nil
}

func (m *machine) inspectExternals(ctx context.Context, topo *topology.Topology) ([]report.External, error) {
	return m.links.inspectExternals(ctx, topo)
}

// inspectExternals asks the parts that have externals.
func (h *head) inspectExternals(ctx context.Context, topo *topology.Topology) ([]report.External, error) {
	all := make([]report.External, len(topo.Externals))
	index := make(map[string]int, len(topo.Externals)) // of all, by the endpoint
	var at []*farPart
	for i, x := range topo.Externals {
		spec := &topo.Links[x.Link]
		index[spec.Endpoints[x.End].String()] = i
		if p := h.ofEnd(spec, x.End); !slices.Contains(at, p) {
			at = append(at, p)
		}
	}
	var mu sync.Mutex // guards all
	return all, h.each(ctx, at, func(ctx context.Context, p *farPart) error {
		found, err := methodExternals.Call(ctx, p.Conn, nil)
		mu.Lock()
		defer mu.Unlock()
		for _, x := range found {
			x.Host = p.Name
			all[index[x.Endpoint]] = x
		}
		return err
	})
}
