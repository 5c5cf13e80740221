package doctor

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
)

// An Attempt is the outcome of something that was tried. The zero Attempt succeeded.
type Attempt struct {
	Errno   syscall.Errno // if a system call failed
	Message string        // why it failed
}

func attempt(err error) Attempt {
	if err == nil {
		return Attempt{}
	}
	a := Attempt{Message: err.Error()}
	errors.As(err, &a.Errno)
	if a.Message == "" {
		a.Message = fmt.Sprintf("%T", err)
	}
	return a
}

func (a Attempt) ok() bool { return a.Message == "" }

// denied reports whether the kernel refused a right.
func (a Attempt) denied() bool { return a.Errno == syscall.EPERM || a.Errno == syscall.EACCES }

// Facts has what was found out about the machine and the user.
type Facts struct {
	Kernel    string // release
	Cores     int    // that this process may use
	Container string // what kind of container this is, "" if none is known
	Seccomp   bool   // a filter of system calls is in force

	UID     int
	Lacking []string // capabilities that labs need and the process has not

	MaxUserNamespaces int    // user.max_user_namespaces; -1 if the kernel has none
	UsernsOff         bool   // kernel.unprivileged_userns_clone is 0
	AppArmorUserns    bool   // kernel.apparmor_restrict_unprivileged_userns is 1
	AppArmor          string // the label that this process has, such as `unconfined`; "" without AppArmor

	Namespaces Attempt // starting a process in a lab's namespaces
	Userns     Attempt // the same in a user namespace alone; only tried if Namespaces failed
	Inside     Inside  // valid if Namespaces succeeded

	Autogroup      bool    // kernel.sched_autogroup_enabled is 1
	State          Attempt // the state directory
	AbstractSocket Attempt
	Cgroups        string  // version 1, hybrid, version 2 or none
	Groups         Attempt // making a group with limits
	Tun            Attempt
	SoftRoCE       bool // the kernel has rdma_rxe, built in, loaded or to be loaded
	Tshark         bool
	ReceiveMax     int // net.core.rmem_max, bytes; 0 if unknown

	Programs Programs
}

// Programs tells what was found out about programs for RDMA.
type Programs struct {
	Folder    string  // of ndklab's libraries
	Libraries Attempt // finding all of them
	Glibc     string  // its version; "" if there is none
	Musl      bool    // the C library is musl
	Ibverbs   []string
	RDMACM    []string // where the system has the libraries
	Unfit     Attempt  // having nodes use these
}

// Inside has what was found out in a lab's namespaces.
type Inside struct {
	Finished Attempt // the child got to the end
	AppArmor string  // as Facts has it, of the child

	Mounts   Attempt
	Proc     Attempt
	HostName Attempt
	IPv6     Attempt // turning it off for new interfaces
	PIDFD    Attempt
	Node     Attempt // a process in network, UTS and mount namespaces of its own

	Veth     Attempt
	Redirect Attempt // joining the middles of a plain link
	Netem    Attempt

	Packet       Attempt // a packet socket with virtio headers
	PacketBuffer int     // bytes granted to it

	Segment   Attempt // UDP_SEGMENT
	Coalesce  Attempt // UDP_GRO
	UDPBuffer int     // bytes granted to a UDP socket

	RealTime Attempt
}

// privileged reports whether labs need no user namespace.
func (f *Facts) privileged() bool { return f.UID == 0 && len(f.Lacking) == 0 }

// forbidding is the AppArmor profile that a label has in force, "" if nothing is
// refused: the process is unconfined, its profile is, or what it does is only
// complained about (man 5 apparmor.d). A label such as `a//&b (enforce)` has several.
func forbidding(label string) string {
	profile, mode, _ := strings.Cut(label, " (")
	switch strings.TrimSuffix(mode, ")") {
	case "", "unconfined", "complain":
		return ""
	}
	return profile
}
