package doctor

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
)

// able is a machine that can do everything, used by root.
func able() Facts {
	return Facts{
		Kernel: "6.8.0", Cores: 8, MaxUserNamespaces: 100000, Cgroups: "version 2", SoftRoCE: true, Tshark: true, ReceiveMax: 4 << 20,
		Inside:   Inside{PacketBuffer: 16 << 20, UDPBuffer: 9 << 20},
		Programs: Programs{Folder: "/opt/verbs", Glibc: "2.36"},
	}
}

// ordinary is the same machine, used by somebody else.
func ordinary() Facts {
	f := able()
	f.UID = 1000
	f.Lacking = []string{"CAP_SYS_ADMIN", "CAP_NET_ADMIN", "CAP_NET_RAW"}
	f.Groups = refusal(syscall.EACCES)
	f.Inside.RealTime = refusal(syscall.EPERM)
	return f
}

func refusal(errno syscall.Errno) Attempt { return attempt(fmt.Errorf("it failed: %w", errno)) }

func with(f Facts, change func(*Facts)) Facts {
	change(&f)
	return f
}

func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		facts   Facts
		canRun  bool
		finding string // the one that matters
		state   State
		found   string // part of what it says
		remedy  string // part of it; "" is none
	}{
		"root":                    {able(), true, "namespaces", OK, "network, mount, UTS and PID namespaces", ""},
		"ordinary user":           {ordinary(), true, "namespaces", OK, "user, network, mount, UTS and PID namespaces", ""},
		"ordinary user, limits":   {ordinary(), true, "node limits", Limited, "version 2: it failed", "run ndklab as root"},
		"ordinary user, priority": {ordinary(), true, "priority", Limited, "no real-time priority", "rtprio 1"},

		"Ubuntu 24.04": {with(ordinary(), func(f *Facts) {
			f.AppArmorUserns = true
			f.Inside.Mounts = refusal(syscall.EACCES)
		}), false, "namespaces", Missing, "AppArmor gives", "kernel.apparmor_restrict_unprivileged_userns=0"},
		"Ubuntu 23.10": {with(ordinary(), func(f *Facts) {
			f.AppArmorUserns = true
			f.Namespaces, f.Userns = refusal(syscall.EACCES), refusal(syscall.EACCES)
		}), false, "namespaces", Missing, "AppArmor forbids", "/etc/apparmor.d/ndklab"},
		"Ubuntu 24.04 with a profile for ndklab": {with(ordinary(), func(f *Facts) { f.AppArmorUserns = true }),
			true, "namespaces", OK, "user, network", ""},
		"Ubuntu 24.04, whose profile refuses the new process": {with(ordinary(), func(f *Facts) {
			f.AppArmorUserns, f.AppArmor = true, "unconfined"
			f.Namespaces = refusal(syscall.EACCES)
		}), false, "namespaces", Missing, "AppArmor forbids", "kernel.apparmor_restrict_unprivileged_userns=0"},
		"Ubuntu 24.04, in a user namespace": {with(ordinary(), func(f *Facts) {
			f.AppArmorUserns, f.AppArmor, f.Inside.AppArmor = true, "unprivileged_userns (enforce)", "unprivileged_userns (enforce)"
			f.Inside.Mounts = refusal(syscall.EACCES)
		}), false, "namespaces", Missing, "AppArmor gives", "kernel.apparmor_restrict_unprivileged_userns=0"},
		"Ubuntu 24.04, under another profile": {with(ordinary(), func(f *Facts) {
			f.AppArmorUserns, f.AppArmor = true, "snap.editor.editor (enforce)"
			f.Namespaces, f.Userns = refusal(syscall.EACCES), refusal(syscall.EACCES)
		}), false, "namespaces", Missing, "profile snap.editor.editor, which ndklab runs under, forbids", "apparmor_parser -r"},
		"a profile without rights": {with(ordinary(), func(f *Facts) {
			f.AppArmor, f.Inside.AppArmor = "ndklab (enforce)", "confined (enforce)"
			f.Inside.Mounts = refusal(syscall.EPERM)
		}), false, "namespaces", Missing, "profile confined gives the processes", "flags=(unconfined)"},
		"a profile without rights, root": {with(able(), func(f *Facts) {
			f.AppArmor, f.Namespaces = "ndklab (enforce)", refusal(syscall.EACCES)
		}), false, "namespaces", Missing, "profile ndklab, which", "`userns,`"},
		"a profile that only complains": {with(ordinary(), func(f *Facts) {
			f.AppArmor, f.Namespaces = "ndklab (complain)", refusal(syscall.EPERM)
		}), false, "namespaces", Missing, "chroot", "outside of chroots"},
		"a profile, and a filter of system calls": {with(ordinary(), func(f *Facts) {
			f.AppArmor, f.Seccomp, f.Namespaces = "ndklab (enforce)", true, refusal(syscall.EPERM)
		}), false, "namespaces", Missing, "seccomp filter", "SystemCallFilter"},
		"Docker on Debian": {with(ordinary(), func(f *Facts) {
			f.Container, f.AppArmor, f.Inside.AppArmor = "Docker", "docker-default (enforce)", "docker-default (enforce)"
			f.Inside.Mounts = refusal(syscall.EACCES)
		}), false, "isolation", Missing, "private mounts", "apparmor=unconfined"},
		"Ubuntu 24.04, root": {with(able(), func(f *Facts) { f.AppArmorUserns = true }), true, "namespaces", OK, "network, mount", ""},
		"Debian with user namespaces off": {with(ordinary(), func(f *Facts) {
			f.UsernsOff = true
			f.Namespaces, f.Userns = refusal(syscall.EPERM), refusal(syscall.EPERM)
		}), false, "namespaces", Missing, "kernel.unprivileged_userns_clone is 0", "kernel.unprivileged_userns_clone=1"},
		"RHEL with user namespaces off": {with(ordinary(), func(f *Facts) {
			f.MaxUserNamespaces = 0
			f.Namespaces, f.Userns = refusal(syscall.ENOSPC), refusal(syscall.ENOSPC)
		}), false, "namespaces", Missing, "user.max_user_namespaces is 0", "sysctl -w user.max_user_namespaces=15000"},
		"nested too deep": {with(ordinary(), func(f *Facts) {
			f.Namespaces, f.Userns = refusal(syscall.EUSERS), refusal(syscall.EUSERS)
		}), false, "namespaces", Missing, "nested too deep", "which is 100000"},
		"no more network namespaces": {with(ordinary(), func(f *Facts) { f.Namespaces = refusal(syscall.ENOSPC) }),
			false, "namespaces", Missing, "no more namespaces", "max_net_namespaces"},
		"a kernel without user namespaces": {with(ordinary(), func(f *Facts) {
			f.MaxUserNamespaces = -1
			f.Namespaces, f.Userns = refusal(syscall.EINVAL), refusal(syscall.EINVAL)
		}), false, "namespaces", Missing, "no user namespaces", "as root"},
		"a kernel without network namespaces": {with(able(), func(f *Facts) { f.Namespaces = refusal(syscall.EINVAL) }),
			false, "namespaces", Missing, "refuses network", "CONFIG_NET_NS"},
		"a chroot": {with(ordinary(), func(f *Facts) { f.Namespaces, f.Userns = refusal(syscall.EPERM), refusal(syscall.EPERM) }),
			false, "namespaces", Missing, "chroot", "outside of chroots"},

		"Docker, root": {with(ordinary(), func(f *Facts) {
			f.UID, f.Container, f.Seccomp = 0, "Docker", true
			f.Lacking = []string{"CAP_SYS_ADMIN", "CAP_NET_ADMIN"}
			f.Namespaces, f.Userns = refusal(syscall.EPERM), refusal(syscall.EPERM)
		}), false, "namespaces", Missing, "its seccomp filter", "seccomp=unconfined"},
		"Docker on Ubuntu, user": {with(ordinary(), func(f *Facts) {
			f.Container, f.Seccomp, f.AppArmorUserns = "Docker", true, true
			f.Namespaces, f.Userns = refusal(syscall.EPERM), refusal(syscall.EPERM)
		}), false, "namespaces", Missing, "Docker", "--privileged"},
		"Docker, root without rights": {with(able(), func(f *Facts) {
			f.Container, f.Lacking = "Docker", []string{"CAP_SYS_ADMIN"}
		}), true, "privileges", Limited, "root without CAP_SYS_ADMIN", "namespaces"},
		"a pod without a right": {with(able(), func(f *Facts) {
			f.Container, f.Lacking = "Kubernetes", []string{"CAP_NET_RAW"}
			f.Namespaces, f.Userns = refusal(syscall.EPERM), refusal(syscall.EPERM)
		}), false, "namespaces", Missing, "nobody without CAP_NET_RAW", "add: [SYS_ADMIN, NET_ADMIN, NET_RAW]"},
		"a pod as it is made": {with(ordinary(), func(f *Facts) {
			f.Container, f.Inside.IPv6 = "Kubernetes", refusal(syscall.EROFS)
		}), false, "isolation", Missing, "IPv6", "securityContext"},
		"a pod's links": {with(ordinary(), func(f *Facts) {
			f.Container, f.Inside.Veth = "Kubernetes", refusal(syscall.EACCES)
		}), false, "links", Missing, "it failed", "securityContext"},
		"a pod's limits": {with(able(), func(f *Facts) {
			f.Container, f.Groups = "Kubernetes", refusal(syscall.EROFS)
		}), true, "node limits", Limited, "it failed", "privileged: true"},
		"Docker with covered /proc": {with(able(), func(f *Facts) {
			f.Container, f.Inside.Proc = "Docker", refusal(syscall.EPERM)
		}), true, "isolation", Limited, "no /proc", "systempaths=unconfined"},
		"Docker with read-only /proc/sys": {with(able(), func(f *Facts) {
			f.Container, f.Inside.Proc, f.Inside.IPv6 = "Docker", refusal(syscall.EPERM), refusal(syscall.EROFS)
		}), false, "isolation", Missing, "IPv6", "systempaths=unconfined"},
		"a service with a seccomp filter": {with(ordinary(), func(f *Facts) {
			f.Seccomp = true
			f.Namespaces, f.Userns = refusal(syscall.EPERM), refusal(syscall.EPERM)
		}), false, "namespaces", Missing, "seccomp filter", "SystemCallFilter"},

		"a child that dies": {with(able(), func(f *Facts) { f.Inside.Finished = attempt(fmt.Errorf("signal: killed")) }),
			false, "namespaces", Missing, "did not answer: signal: killed", "dmesg"},
		"an old kernel": {with(able(), func(f *Facts) { f.Inside.PIDFD = refusal(syscall.ENOSYS) }),
			false, "isolation", Missing, "pidfds", "Linux 5.4"},
		"an old kernel's sockets": {with(able(), func(f *Facts) { f.Inside.Coalesce = refusal(syscall.ENOPROTOOPT) }),
			false, "socket offloads", Missing, "it failed", "Linux 5.4"},
		"no network namespace left": {with(able(), func(f *Facts) { f.Inside.Node = refusal(syscall.ENOSPC) }),
			false, "nodes", Missing, "it failed", "max_net_namespaces"},
		"no veth":    {with(able(), func(f *Facts) { f.Inside.Veth = refusal(syscall.EOPNOTSUPP) }), false, "links", Missing, "it failed", "veth"},
		"no mirred":  {with(able(), func(f *Facts) { f.Inside.Redirect = refusal(syscall.ENOENT) }), true, "plain links", Limited, "it failed", "act_mirred"},
		"no packets": {with(able(), func(f *Facts) { f.Inside.Packet = refusal(syscall.EAFNOSUPPORT) }), false, "impaired links", Missing, "it failed", "af_packet"},
		"stock buffers": {with(ordinary(), func(f *Facts) { f.Inside.UDPBuffer, f.ReceiveMax = 425984, 212992 }),
			true, "socket buffers", Limited, "416 KiB granted of 9 MiB wanted", "net.core.rmem_max=4718592 (it is 212992)"},
		"no control groups": {with(able(), func(f *Facts) { f.Cgroups, f.Groups = noCgroups, refusal(syscall.ENOENT) }),
			true, "node limits", Limited, "absent", "mount"},
		"control groups read-only": {with(able(), func(f *Facts) { f.Groups = refusal(syscall.EROFS) }),
			true, "node limits", Limited, "version 2: it failed", "cgroupns=host"},
		"a kernel that starves": {with(ordinary(), func(f *Facts) { f.Kernel, f.Autogroup = "6.18.44-generic", true }),
			true, "scheduler", Limited, "Linux 6.18 with a group for each session", "sysctl -w kernel.sched_autogroup_enabled=0"},
		"a kernel that would starve":      {with(able(), func(f *Facts) { f.Kernel = "6.18.44" }), true, "scheduler", OK, "no fault", ""},
		"a kernel that does not starve":   {with(able(), func(f *Facts) { f.Kernel, f.Autogroup = "6.12.118+deb13-amd64", true }), true, "scheduler", OK, "no fault", ""},
		"a kernel that starves no longer": {with(able(), func(f *Facts) { f.Kernel, f.Autogroup = "7.2.12", true }), true, "scheduler", OK, "no fault", ""},
		"one core":                        {with(able(), func(f *Facts) { f.Cores = 1 }), true, "system", Limited, "cores: 1", "two cores"},
		"a bad state folder":              {with(able(), func(f *Facts) { f.State = refusal(syscall.EACCES) }), false, "state", Missing, "it failed", "XDG_RUNTIME_DIR"},
		"no abstract sockets": {with(able(), func(f *Facts) { f.AbstractSocket = refusal(syscall.EPERM) }),
			false, "lab sockets", Missing, "it failed", "AppArmor"},
		"no netem":  {with(able(), func(f *Facts) { f.Inside.Netem = refusal(syscall.ENOENT) }), true, "netem", Missing, "does not have it", ""},
		"no tun":    {with(able(), func(f *Facts) { f.Tun = refusal(syscall.ENOENT) }), true, "tun", Missing, "it failed", ""},
		"no rxe":    {with(able(), func(f *Facts) { f.SoftRoCE = false }), true, "rdma_rxe", Missing, "soft-RoCE", ""},
		"no tshark": {with(able(), func(f *Facts) { f.Tshark = false }), true, "tshark", Missing, "not installed", "Wireshark"},
	} {
		t.Run(name, func(t *testing.T) {
			d := judge(c.facts)
			if d.CanRun != c.canRun {
				t.Errorf("can run: %t, want %t; obstacles: %v", d.CanRun, c.canRun, d.Obstacles())
			}
			for _, f := range d.Findings {
				if f.Name != c.finding {
					continue
				}
				if f.State != c.state || !strings.Contains(f.Found, c.found) || !strings.Contains(f.Remedy, c.remedy) || (f.Remedy == "") != (c.remedy == "") {
					t.Errorf("got %+v\nwant %s, found %q, remedy %q", f, c.state, c.found, c.remedy)
				}
				return
			}
			t.Errorf("no finding %q", c.finding)
		})
	}
}

// A finding that is not ok has a consequence, and every obstacle has a remedy.
// A finding that is ok has neither, and root on a machine that can do
// everything hears only of such findings.
func TestJudgeIsComplete(t *testing.T) {
	for _, f := range judge(able()).Findings {
		if f.State != OK || f.Consequence != "" || f.Remedy != "" {
			t.Errorf("%+v", f)
		}
	}
	bad := refusal(syscall.ENOENT)
	unable := Facts{Kernel: "6.13.1", Autogroup: true, UID: 1000, Groups: bad, State: bad, AbstractSocket: bad, Tun: bad, Inside: Inside{
		Mounts: bad, Node: bad, Veth: bad, Redirect: bad, Netem: bad, Packet: bad, Segment: bad, RealTime: bad,
	}}
	for _, f := range judge(unable).Findings {
		if f.State == OK && f.Name == "namespaces" {
			continue // they could be made
		}
		if f.State == OK || f.Consequence == "" || f.Required && f.Remedy == "" {
			t.Errorf("%+v", f)
		}
	}
}

func TestText(t *testing.T) {
	d := Diagnosis{Findings: []Finding{
		{Name: "links", State: OK, Required: true, Found: "veth pairs"},
		{Name: "namespaces", State: Missing, Required: true, Found: "none", Consequence: "no lab can start", Remedy: "ask\nsomebody"},
	}}
	var b strings.Builder
	if err := d.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	const want = `ok       links       veth pairs
missing  namespaces  none
                     means: no lab can start
                     remedy: ask
                             somebody

labs cannot run here
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
	if got := fmt.Sprint(d.Obstacles()); got != "[namespaces: none; remedy: ask somebody]" {
		t.Errorf("obstacles: %s", got)
	}
}
