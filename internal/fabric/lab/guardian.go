package lab

import (
	"context"
	"errors"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/hosts"
	"golang.org/x/sys/unix"
)

// The files that the guardian inherits and passes on to the supervisor.
const (
	ownerFile  = firstFile + iota // the channel to the command that starts the lab
	listenFile                    // the API's listening socket
	stateFile                     // the state file, locked
	hostsFile                     // of a lab over several hosts, the socket that their workers dial
	launchFile                    // and the channel to the guardian, which starts these
)

// guard is the guardian: it starts the supervisor in namespaces of its own,
// waits for it, and removes what the kernel does not. The kernel has killed
// every process of the lab by the time that the supervisor has ended, because it
// was process 1 of their PID namespace. Nothing depends on the guardian: when
// it is killed the lab goes on, and the next command removes the rest.
func guard(name string) error {
	owner := inherited(ownerFile, "owner")
	listener := inherited(listenFile, "listener")
	locked := inherited(stateFile, "state")
	defer runtime.KeepAlive(locked) // the lock is held to the very end of the process
	if err := closeInherited(); err != nil {
		return err
	}
	p, err := placeOf(name)
	if err != nil {
		return err
	}
	// A signal that is meant to end the lab must not end the guardian before its
	// work is done.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT)

	files := []*os.File{owner, listener, locked}
	var launch *hosts.Launch // nil: the lab is on this machine
	if spec := os.Getenv(hostsVariable); spec != "" {
		if launch, err = launchHosts(spec, name); err != nil {
			listener.Close()
			tellOwner(owner, control.AsError(err))
			return errors.Join(err, p.cleanAs(locked))
		}
		inherits := launch.Files()
		files = append(files, inherits[:]...)
	}
	cmd := childCommand(supervisorName, name, os.Stderr, files...)
	if launch != nil {
		cmd.Env = append(cmd.Env, headVariable+"=1")
	}
	cmd.SysProcAttr = supervisorAttributes()
	startErr := cmd.Start()
	if launch != nil {
		launch.Begun()
	}
	listener.Close() // the socket's name is to vanish with the supervisor
	if startErr != nil {
		if launch != nil {
			launch.End()
		}
		// The command would otherwise see no more than the end of its channel.
		tellOwner(owner, namespaceError(startErr))
		return errors.Join(startErr, p.cleanAs(locked))
	}
	owner.Close()
	writeErr := state{Lab: name, Supervisor: cmd.Process.Pid, Log: p.logFile()}.write(locked)
	if writeErr != nil {
		log.Printf("state file: %v", writeErr) // a full disk; the lab does not depend on it
	}
	go func() {
		for range signals {
			// If the supervisor is gone already, so is the signal's purpose.
			_ = cmd.Process.Signal(unix.SIGTERM)
		}
	}()
	waitErr := cmd.Wait()
	if exit := (*exec.ExitError)(nil); waitErr != nil && !errors.As(waitErr, &exit) {
		log.Print(waitErr)
	}
	if launch != nil {
		launch.End() // before a lab of that name can be again
	}
	return p.cleanAs(locked)
}

// Variables of the processes of a lab over several hosts.
const (
	hostsVariable   = "NDKLAB_HOSTS"   // of the guardian: which
	networkVariable = "NDKLAB_NETWORK" // of the guardian: in which they reach it
	headVariable    = "NDKLAB_HEAD"    // of the supervisor: it is the head
	// continuesVariable is of the guardian, of a lab that goes on without a host that is lost.
	continuesVariable = "NDKLAB_CONTINUES"
)

// launchHosts makes ready to start the workers of a lab's hosts.
func launchHosts(spec, lab string) (*hosts.Launch, error) {
	parsed, err := hosts.Parse(spec)
	if err != nil {
		return nil, err
	}
	parsed.Network, parsed.Continues = os.Getenv(networkVariable), os.Getenv(continuesVariable) != ""
	return hosts.NewLaunch(parsed, lab, os.Stderr)
}

// supervisorAttributes are the namespaces that every lab has; that of IPC is there so that
// no shared memory segment outlives the lab. An ordinary user
// becomes root in a user namespace that holds the others.
func supervisorAttributes() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{
		Setsid:     true,
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC,
	}
	if !privileged() {
		attr.Cloneflags |= unix.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	return attr
}

// privileged reports whether the process may make namespaces and change their
// networks without a user namespace.
func privileged() bool { return os.Geteuid() == 0 && len(Lacking()) == 0 }

// Lacking lists the effective capabilities that labs need without a user namespace, and this process does not have.
func Lacking() (names []string) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	err := unix.Capget(&header, &data[0])
	for _, c := range [...]struct {
		bit  int
		name string
	}{{unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN"}, {unix.CAP_NET_ADMIN, "CAP_NET_ADMIN"}, {unix.CAP_NET_RAW, "CAP_NET_RAW"}} {
		if err != nil || data[0].Effective&(1<<c.bit) == 0 {
			names = append(names, c.name)
		}
	}
	return names
}

// namespaceError says what to do when the kernel refuses a lab its namespaces.
func namespaceError(err error) *control.Error { return refusal(err, os.Geteuid(), Lacking()) }

// refusal is the namespaceError of a user who lacks capabilities.
func refusal(err error, uid int, lacking []string) *control.Error {
	switch denied := errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES); {
	case denied && uid == 0 && len(lacking) > 0:
		return control.Errorf(control.Unable, "this system does not let root without %s make namespaces (%v): give ndklab these capabilities; `ndklab doctor` says more", strings.Join(lacking, ", "), err)
	case denied:
		return control.Errorf(control.Unable, "this system does not let user %d make namespaces (%v): allow unprivileged user namespaces, or run as root; `ndklab doctor` says more", uid, err)
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EUSERS):
		return control.Errorf(control.Unable, "no more namespaces are allowed (%v): raise user.max_user_namespaces and its like", err)
	}
	return control.Errorf(control.Failed, "start a process of the lab: %v", err)
}

// tellOwner answers the command that is waiting for its lab, in the supervisor's
// place, with the reason why there is none.
func tellOwner(owner *os.File, reason *control.Error) {
	conn, err := control.FromFile(owner, func(context.Context, *control.Request) (any, error) { return nil, reason })
	if err != nil {
		log.Print(err)
		return
	}
	defer conn.Close()
	select {
	case <-conn.Done(): // it has heard
	case <-time.After(endTime):
	}
}
