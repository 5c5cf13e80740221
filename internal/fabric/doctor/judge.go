package doctor

import (
	"fmt"
	"strings"
	"syscall"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/udp"
)

// wantedBuffer is the memory of a socket that an adapter makes full use of whose
// topology sets no receive buffer, in bytes.
var wantedBuffer = udp.Charged(provider.DefaultReceiveBuffer)

// judge decides what follows from the facts.
func judge(f Facts) Diagnosis {
	findings := []Finding{f.system(), f.privileges(), f.namespaces()}
	if f.Namespaces.ok() && findings[2].State != Missing {
		findings = append(findings, f.setup(), f.nodes(), f.links(), f.plainLinks(), f.impairedLinks(), f.offloads(), f.buffers(), f.realTime())
	}
	findings = append(findings, f.scheduler(), f.limits(), f.state(), f.sockets())
	if f.Namespaces.ok() && findings[2].State != Missing {
		findings = append(findings, f.netem())
	}
	findings = append(findings, f.programs(), f.tun(), f.softRoCE(), f.tshark())
	d := Diagnosis{Findings: findings}
	d.CanRun = len(d.Obstacles()) == 0
	return d
}

// judged is a finding that is ok if what it is about went well, and else in the
// state of bad with its consequence and remedy.
func judged(a Attempt, found string, bad Finding) Finding {
	if a.ok() {
		return Finding{Name: bad.Name, State: OK, Required: bad.Required, Found: found}
	}
	if bad.Found == "" {
		bad.Found = a.Message
	}
	return bad
}

func (f *Facts) system() Finding {
	n := Finding{Name: "system", State: OK, Found: fmt.Sprintf("Linux %s, cores: %d", f.Kernel, f.Cores)}
	if f.Container != "" {
		n.Found += ", in a container (" + f.Container + ")"
	}
	if f.Cores < 2 {
		n.State = Limited
		n.Consequence = "the link engine shares the one core with the nodes: delays and rates are less exact under load"
		n.Remedy = "a machine with two cores or more"
	}
	return n
}

func (f *Facts) privileges() Finding {
	n := Finding{Name: "privileges"}
	switch {
	case f.privileged():
		n.State, n.Found = OK, "root, with all capabilities that labs use"
	case f.UID == 0:
		n.State, n.Found = Limited, "root without "+strings.Join(f.Lacking, ", ")
		n.Consequence = "labs run in a user namespace, as an ordinary user's do"
		n.Remedy = "none needed; in a container, see the remedy for namespaces"
	default:
		n.State, n.Found = Limited, fmt.Sprintf("ordinary user %d", f.UID)
		n.Consequence = "labs run in a user namespace: as a rule without limits of cpu, memory and processes and without real-time priority,\nand with the socket buffers that the system allows"
		n.Remedy = "none needed; root lifts the limits"
	}
	return n
}

// kubernetes is the kind of container that a pod has.
const kubernetes = "Kubernetes"

// Remedies that take more than a few words.
const (
	podRemedy = "in the pod's securityContext, as `ndklab generate kubernetes` writes it: runAsUser: 0,\n" +
		"capabilities: {add: [SYS_ADMIN, NET_ADMIN, NET_RAW]}, appArmorProfile: {type: Unconfined}; or privileged: true"
	containerRemedy = "start the container with --privileged, or with --cap-add SYS_ADMIN --cap-add NET_ADMIN\n" +
		"--security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined"
	appArmorRemedy = "as root: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0\n" +
		"or, for ndklab alone, a profile /etc/apparmor.d/ndklab of one line,\n" +
		"`profile ndklab /PATH/TO/ndklab flags=(unconfined) { userns, }`, and apparmor_parser -r /etc/apparmor.d/ndklab;\n" +
		"or run ndklab as root"
	// With a path that leads to the mount namespace of the caller (/proc/self/exe) a
	// profile with rules of its own needs attach_disconnected; an unconfined one does not.
	profileRemedy = "as root: in the file of that profile in /etc/apparmor.d, write `flags=(unconfined)` before its brace\n" +
		"and `userns,` after it, and run apparmor_parser -r on the file; in a container: --security-opt apparmor=unconfined"
)

// containerRemedy says how a container gets the rights that labs need.
func (f *Facts) containerRemedy() string {
	if f.Container == kubernetes {
		return podRemedy
	}
	return containerRemedy
}

// namespaces judges whether the kernel gives a lab its namespaces, and why not.
func (f *Facts) namespaces() Finding {
	n := Finding{Name: "namespaces", State: Missing, Required: true, Consequence: "no lab can start"}
	kind := "user, network, mount, UTS and PID namespaces"
	if f.privileged() {
		kind = "network, mount, UTS and PID namespaces"
	}
	a := f.Namespaces
	switch {
	case a.ok() && !f.privileged() && f.Inside.Mounts.denied() && f.restricted(f.Inside.AppArmor):
		// Since Ubuntu 24.04 the namespaces are made, but bestow no rights.
		n.Found = "AppArmor gives the processes in an unprivileged user namespace no rights"
		n.Remedy = appArmorRemedy
	case a.ok() && f.Container == "" && f.Inside.Mounts.denied() && forbidding(f.Inside.AppArmor) != "":
		n.Found = fmt.Sprintf("AppArmor's profile %s gives the processes in a lab's namespaces no rights", forbidding(f.Inside.AppArmor))
		n.Remedy = profileRemedy
	case a.ok() && !f.Inside.Finished.ok():
		n.Found = "a process started in a lab's namespaces did not answer: " + f.Inside.Finished.Message
		n.Remedy = "look for its end in the kernel's log (dmesg)"
	case a.ok():
		n.State, n.Consequence, n.Found = OK, "", kind
	case a.Errno == syscall.ENOSPC || a.Errno == syscall.EUSERS:
		f.noMore(&n)
	case a.Errno == syscall.EINVAL && !f.privileged():
		n.Found = "this kernel has no user namespaces (" + a.Message + ")"
		n.Remedy = "run ndklab as root, or use a kernel with CONFIG_USER_NS"
	case a.denied():
		f.refused(&n)
	default:
		n.Found = "the kernel refuses " + kind + ": " + a.Message
		n.Remedy = "use a kernel that has CONFIG_NET_NS, CONFIG_PID_NS, CONFIG_UTS_NS, CONFIG_IPC_NS and, without root, CONFIG_USER_NS"
	}
	return n
}

// restricted reports whether a process with this label is one that Ubuntu's
// restriction is for: unconfined, or already in the profile that Ubuntu 24.04 gives
// to processes in user namespaces. Under another profile, that one decides.
func (f *Facts) restricted(label string) bool {
	profile := forbidding(label)
	return f.AppArmorUserns && (profile == "" || strings.Contains(profile, "unprivileged_userns"))
}

// noMore judges a refusal because of a limit.
func (f *Facts) noMore(n *Finding) {
	switch {
	case !f.privileged() && f.MaxUserNamespaces == 0:
		n.Found = "user namespaces are turned off: user.max_user_namespaces is 0"
		n.Remedy = "as root: sysctl -w user.max_user_namespaces=15000 (to keep it: a file in /etc/sysctl.d); or run ndklab as root"
	case !f.privileged() && !f.Userns.ok():
		n.Found = "no more user namespaces are allowed, or they are nested too deep: " + f.Userns.Message
		n.Remedy = fmt.Sprintf("as root: raise user.max_user_namespaces, which is %d", f.MaxUserNamespaces)
	default:
		n.Found = "no more namespaces are allowed: " + f.Namespaces.Message
		n.Remedy = "as root: raise user.max_net_namespaces, max_mnt_namespaces, max_pid_namespaces, max_ipc_namespaces and max_uts_namespaces"
	}
}

// refused judges a refusal because of missing rights. Several causes may be
// there at once; the ones that surely refuse come first.
func (f *Facts) refused(n *Finding) {
	switch {
	case f.UID != 0 && f.UsernsOff:
		n.Found = "unprivileged user namespaces are turned off: kernel.unprivileged_userns_clone is 0"
		n.Remedy = "as root: sysctl -w kernel.unprivileged_userns_clone=1; or run ndklab as root"
	case f.Container != "":
		n.Found = fmt.Sprintf("the container (%s) lets nobody make namespaces", f.Container)
		if f.UID == 0 && len(f.Lacking) > 0 {
			n.Found = fmt.Sprintf("the container (%s) lets nobody without %s make namespaces", f.Container, strings.Join(f.Lacking, ", "))
		}
		if f.Seccomp {
			n.Found += ": its seccomp filter refuses it"
		}
		n.Remedy = f.containerRemedy()
	case !f.privileged() && f.restricted(f.AppArmor) && (f.Namespaces.Errno == syscall.EACCES || !f.Seccomp):
		n.Found = "AppArmor forbids unprivileged user namespaces: kernel.apparmor_restrict_unprivileged_userns is 1"
		n.Remedy = appArmorRemedy
	case forbidding(f.AppArmor) != "" && (f.Namespaces.Errno == syscall.EACCES || !f.Seccomp):
		n.Found = fmt.Sprintf("AppArmor's profile %s, which ndklab runs under, forbids new namespaces", forbidding(f.AppArmor))
		n.Remedy = profileRemedy
	case f.Seccomp:
		n.Found = "a seccomp filter refuses to make namespaces: this is a container, or a service with a filter of system calls"
		n.Remedy = containerRemedy + ";\na systemd service: without SystemCallFilter and RestrictNamespaces"
	default:
		n.Found = "the kernel forbids it (" + f.Namespaces.Message + "): by a security module, or because this is a chroot"
		n.Remedy = "run ndklab as root, outside of chroots"
	}
}

// setup judges what a supervisor does first.
func (f *Facts) setup() Finding {
	n := Finding{Name: "isolation", Required: true}
	in := &f.Inside
	for _, step := range []struct {
		what string
		Attempt
	}{
		{"private mounts", in.Mounts},
		{"a host name of the lab's own", in.HostName},
		{"pidfds", in.PIDFD},
		{"turning off IPv6 between the nodes", in.IPv6},
	} {
		if step.ok() {
			continue
		}
		n.State, n.Consequence = Missing, "no lab can start"
		n.Found = "the kernel refuses " + step.what + ": " + step.Message
		n.Remedy = "run ndklab as root"
		switch {
		case f.Container != "" || f.Seccomp:
			n.Remedy = f.containerRemedy()
		case step.Errno == syscall.ENOSYS:
			n.Remedy = "Linux 5.4 or later"
		}
		return n
	}
	return judged(in.Proc, "mounts, host name and processes of the lab's own", Finding{
		Name: n.Name, Required: true, State: Limited, Found: "no /proc of the lab's own: " + in.Proc.Message,
		Consequence: "commands in nodes see the processes of the whole machine in /proc",
		Remedy:      "in a container: --security-opt systempaths=unconfined, or --privileged",
	})
}

func (f *Facts) nodes() Finding {
	return judged(f.Inside.Node, "a process in network, mount and UTS namespaces of its own", Finding{
		Name: "nodes", State: Missing, Required: true, Consequence: "no node can start",
		Remedy: "as root: raise user.max_net_namespaces, max_mnt_namespaces, max_pid_namespaces and max_uts_namespaces",
	})
}

func (f *Facts) links() Finding {
	n := judged(f.Inside.Veth, "veth pairs", Finding{
		Name: "links", State: Missing, Required: true, Consequence: "no links, hence no lab",
		Remedy: "a kernel with CONFIG_VETH (modprobe veth, as root)",
	})
	if f.Container != "" && f.Inside.Veth.denied() {
		n.Remedy = f.containerRemedy()
	}
	return n
}

func (f *Facts) plainLinks() Finding {
	return judged(f.Inside.Redirect, "joined in the kernel (tc ingress, mirred)", Finding{
		Name: "plain links", State: Limited,
		Consequence: "a lab with a link without delay, jitter, loss and rate cannot start",
		Remedy:      "modprobe sch_ingress act_mirred cls_u32, as root; or give every link a delay, such as 1us",
	})
}

func (f *Facts) impairedLinks() Finding {
	return judged(f.Inside.Packet, "packet sockets with virtio headers, buffer "+size(f.Inside.PacketBuffer), Finding{
		Name: "impaired links", State: Missing, Required: true,
		Consequence: "no link can have delay, jitter, loss or rate",
		Remedy:      "a kernel with CONFIG_PACKET (modprobe af_packet, as root)",
	})
}

func (f *Facts) offloads() Finding {
	bad := f.Inside.Segment
	if bad.ok() {
		bad = f.Inside.Coalesce
	}
	return judged(bad, "UDP_SEGMENT, UDP_GRO", Finding{
		Name: "socket offloads", State: Missing, Required: true, Consequence: "no adapter can be opened", Remedy: "Linux 5.4 or later",
	})
}

func (f *Facts) buffers() Finding {
	n := Finding{Name: "socket buffers", State: OK, Found: fmt.Sprintf("%s granted of %s wanted", size(f.Inside.UDPBuffer), size(wantedBuffer))}
	if f.Inside.UDPBuffer < wantedBuffer {
		n.State = Limited
		n.Consequence = "bursts from several peers may overflow an adapter's buffer, which costs retransmissions"
		// The kernel grants twice what net.core.rmem_max says, for its bookkeeping.
		n.Remedy = fmt.Sprintf("as root: sysctl -w net.core.rmem_max=%d (it is %d)", wantedBuffer/2, f.ReceiveMax)
	}
	return n
}

func (f *Facts) realTime() Finding {
	return judged(f.Inside.RealTime, "real-time priority", Finding{
		Name: "priority", State: Limited, Found: "no real-time priority: " + f.Inside.RealTime.Message,
		Consequence: "on a busy machine delays on links are less exact",
		Remedy:      "run ndklab as root, or allow the user `rtprio 1` in /etc/security/limits.conf",
	})
}

// scheduler judges whether the kernel keeps from processors what runs beside programs that poll. From Linux 6.13 to 6.19 the
// virtual time of a group of processes that runs may go back each time that its weight changes, as when another of them wakes
// (reverted by https://lkml.iu.edu/hypermail/linux/kernel/2602.2/04151.html; seen on 6.18.44). Each session is a group by default
// (sched(7), autogroup), and threads of the kernel, which receive packets, are in none.
func (f *Facts) scheduler() Finding {
	var major, minor int
	if _, err := fmt.Sscanf(f.Kernel, "%d.%d", &major, &minor); err != nil || major != 6 || minor < 13 || !f.Autogroup {
		return Finding{Name: "scheduler", State: OK, Found: "no fault is known"}
	}
	return Finding{
		Name: "scheduler", State: Limited, Found: fmt.Sprintf("Linux %d.%d with a group for each session", major, minor),
		Consequence: "beside programs in nodes that poll, as those of MPI do, all else may wait for seconds, and packets with it",
		Remedy:      "as root: sysctl -w kernel.sched_autogroup_enabled=0 (to keep it: a file in /etc/sysctl.d)",
	}
}

func (f *Facts) limits() Finding {
	n := judged(f.Groups, "control groups "+f.Cgroups+", for cpu, memory and processes", Finding{
		Name: "node limits", State: Limited, Found: "control groups " + f.Cgroups + ": " + strings.ReplaceAll(f.Groups.Message, "\n", "; "),
		Consequence: "cpu, memory and processes of nodes are not limited, or not all of them, whatever the topology says",
		Remedy:      "run ndklab as root, or in a group that is delegated to this user:\nsystemd-run --user --scope -p Delegate=yes ndklab ...",
	})
	switch {
	case n.State == OK || !f.privileged():
	case f.Cgroups == noCgroups:
		n.Remedy = "mount the control groups at /sys/fs/cgroup"
	case f.Container == kubernetes:
		n.Remedy = "privileged: true in the pod's securityContext"
	default:
		n.Remedy = "make /sys/fs/cgroup writable and its cpu, memory and pids controllers available;\nin a container: --privileged --cgroupns=host -v /sys/fs/cgroup:/sys/fs/cgroup"
	}
	return n
}

func (f *Facts) state() Finding {
	return judged(f.State, "a state directory that is the user's alone", Finding{
		Name: "state", State: Missing, Required: true, Consequence: "no lab can start",
		Remedy: "mend the directory, or set XDG_RUNTIME_DIR (an ordinary user) to one that is writable",
	})
}

func (f *Facts) sockets() Finding {
	return judged(f.AbstractSocket, "abstract Unix sockets", Finding{
		Name: "lab sockets", State: Missing, Required: true, Consequence: "commands cannot talk to labs",
		Remedy: "allow abstract Unix sockets in the policy (AppArmor, SELinux, Landlock) that confines ndklab",
	})
}

func (f *Facts) netem() Finding {
	return judged(f.Inside.Netem, "the kernel has it", Finding{
		Name: "netem", State: Missing, Found: "the kernel does not have it",
		Consequence: "nothing: links use ndklab's own engine",
	})
}

func (f *Facts) tun() Finding {
	return judged(f.Tun, "/dev/net/tun", Finding{
		Name: "tun", State: Missing, Consequence: "nothing for labs; programs in nodes cannot make tunnel devices",
	})
}

func (f *Facts) softRoCE() Finding {
	n := Finding{Name: "rdma_rxe", State: OK, Found: "the kernel has soft-RoCE"}
	if !f.SoftRoCE {
		n.State, n.Found = Missing, "the kernel does not have soft-RoCE"
		n.Consequence = "nothing: ndklab's adapters do not use it"
	}
	return n
}

func (f *Facts) tshark() Finding {
	n := Finding{Name: "tshark", State: OK, Found: "installed"}
	if !f.Tshark {
		n.State, n.Found = Missing, "not installed"
		n.Consequence = "nothing for labs; captured traffic cannot be read on this machine"
		n.Remedy = "install tshark, or read captures elsewhere with Wireshark"
	}
	return n
}

func size(n int) string {
	if n < 1<<20 {
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%.3g MiB", float64(n)/(1<<20))
}
