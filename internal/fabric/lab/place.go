package lab

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/node/cgroup"
	"github.com/ndklab/ndklab/topology"
	"golang.org/x/sys/unix"
)

// A place has the files by which the outside sees a lab: its state file, its log and
// its socket. A lab of the same name of another user has another place.
//
// The state file is locked (flock) by an open file that command, guardian and
// supervisor share. While any of them lives the lock is held. A process that gets
// the lock knows that the lab is over and may remove what it left. This cannot
// mistake another process for the supervisor, and it covers a lab that is only
// just starting.
type place struct {
	dir  string // the state directory
	name string
}

// A state is the content of a state file, for people to read and to find the log by.
// Nothing is decided by it.
type state struct {
	Lab        string `json:"lab"`
	Supervisor int    `json:"supervisor,omitempty"` // process id
	Log        string `json:"log"`
}

// CheckName says why no lab can have that name, by the rule of topology files; nil if one
// can.
func CheckName(name string) error {
	if err := topology.CheckName(name); err != nil {
		return control.Errorf(control.Usage, "%q is no lab name: %v", name, err)
	}
	return nil
}

// placeOf is the place of the caller's lab name; it makes the state directory.
func placeOf(name string) (place, error) {
	if err := CheckName(name); err != nil {
		return place{}, err
	}
	dir, err := stateDir()
	if err != nil {
		return place{}, err
	}
	return place{dir: dir, name: name}, nil
}

// The endings of the names of a lab's files, which begin with the lab's name.
const (
	stateSuffix    = ".json"
	logSuffix      = ".log"
	externalSuffix = ".external" // a directory
)

func (p place) stateFile() string { return filepath.Join(p.dir, p.name+stateSuffix) }
func (p place) logFile() string   { return filepath.Join(p.dir, p.name+logSuffix) }

// socket is the abstract Unix socket of the lab's API, in the network namespace
// that the lab was started from.
func (p place) socket() *net.UnixAddr {
	return &net.UnixAddr{Net: "unix", Name: "@ndklab/" + strconv.Itoa(os.Geteuid()) + "/" + p.name}
}

// stateDir is the caller's state directory, made if need be.
func stateDir() (string, error) {
	dir := "/run/ndklab"
	if uid := os.Geteuid(); uid != 0 {
		if runtime := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(runtime) {
			dir = filepath.Join(runtime, "ndklab")
		} else {
			dir = filepath.Join(os.TempDir(), "ndklab-"+strconv.Itoa(uid))
		}
	}
	made := os.Mkdir(dir, 0o700) // fails where it is there, too, and in a process that makes no files (package confine)
	// Anybody may have put something of this name into a shared directory.
	info, err := os.Lstat(dir)
	if err != nil {
		return "", noState("state directory", cmp.Or(made, err))
	}
	if !info.IsDir() || info.Mode().Perm()&0o022 != 0 || !owned(info) {
		return "", control.Errorf(control.Unable, "state directory %s must be a directory that belongs to and is writable by user %d alone: remove it", dir, os.Geteuid())
	}
	return dir, nil
}

// noState is the error of a state directory or file that cannot be made or
// written, with what can be done about it.
func noState(what string, err error) error {
	var remedies []string
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		remedies = append(remedies, "free some space there")
	}
	if os.Geteuid() != 0 {
		remedies = append(remedies, elsewhere)
	}
	text := fmt.Sprintf("%s: %v", what, err)
	if len(remedies) > 0 {
		text += ": " + strings.Join(remedies, ", or ")
	}
	return control.Errorf(control.Unable, "%s", text)
}

// elsewhere is a remedy for ordinary users.
const elsewhere = "set XDG_RUNTIME_DIR to a directory of yours"

// lock opens the state file, making it if asked to, and takes its lock; it
// returns errLocked if somebody has it, and an error of fs.ErrNotExist if there
// is no such file.
func (p place) lock(create bool) (*os.File, error) {
	flags := os.O_RDONLY // which locking takes no more than, and some who ask may not write (package confine)
	if create {
		flags = os.O_RDWR | os.O_CREATE
	}
	for {
		f, err := os.OpenFile(p.stateFile(), flags|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		err = tryLock(f)
		if err == nil && sameFile(f, p.stateFile()) {
			return f, nil
		}
		f.Close()
		if err != nil {
			return nil, err
		}
		// Its last owner removed it between our opening and locking: again.
	}
}

var errLocked = errors.New("state file is locked")

// Waiting for the processes of a lab to end.
const (
	lockPoll = 2 * time.Millisecond
	endTime  = 10 * time.Second // they take far less, unless the machine is in trouble
	// Each node may add this to it: the kernel takes away namespaces and interfaces of one node after the other.
	endTimePerNode = 5 * time.Millisecond
)

// endTimeOf returns how long the processes of a lab of so many nodes may take to end.
func endTimeOf(nodes int) time.Duration { return endTime + time.Duration(nodes)*endTimePerNode }

// reserve makes and locks the state file of a lab whose socket the caller has
// bound. A lab of that name that is just ending is waited for.
func (p place) reserve(ctx context.Context) (*os.File, error) {
	var locked *os.File
	err := poll(ctx, endTime, func() (err error) {
		locked, err = p.lock(true)
		return err
	})
	if errors.Is(err, errLocked) {
		return nil, control.Errorf(control.Usage, "lab %s is up already, in another network namespace", p.name)
	}
	if err != nil {
		return nil, noState("state file", err)
	}
	if err := (state{Lab: p.name, Log: p.logFile()}).write(locked); err != nil {
		err = noState("state file", err)
		err = errors.Join(err, p.clean())
		locked.Close()
		return nil, err
	}
	return locked, nil
}

// awaitEnd waits until the processes of a lab that is ending are gone, and
// removes what they left if the guardian did not. life is the lab's state file,
// as the caller opened it while the lab lived: by now another lab may have that
// name. It is nil if the file was gone already. The lab has so many nodes.
func (p place) awaitEnd(life *os.File, nodes int) error {
	wait := func() error { return tryLock(life) }
	if life == nil {
		wait = p.unheard
	}
	err := poll(context.Background(), endTimeOf(nodes), wait)
	if errors.Is(err, errLocked) {
		return control.Errorf(control.Failed, "lab %s does not end%s", p.name, p.remedy())
	}
	if err != nil {
		return err
	}
	if life != nil && !sameFile(life, p.stateFile()) {
		return nil // the guardian removes the rest
	}
	return p.cleanAs(life)
}

// mute is the error of a lab that does not answer, with what can be done about it.
func (p place) mute() error {
	return control.Errorf(control.Failed, "lab %s does not answer%s", p.name, p.remedy())
}

// remedy returns the remedy for a lab that is stuck, as the end of an error; "" if it is
// not known which process is its supervisor.
func (p place) remedy() string {
	var s state
	if data, err := os.ReadFile(p.stateFile()); err == nil && json.Unmarshal(data, &s) == nil && s.Supervisor != 0 {
		return fmt.Sprintf(": if process %d is its supervisor, `kill -9 %[1]d` ends it", s.Supervisor)
	}
	return ""
}

// unheard fails with errLocked if somebody listens at the lab's socket.
func (p place) unheard() error {
	sock, err := p.dial(context.Background())
	if err == nil {
		sock.Close()
		return errLocked
	}
	if errors.Is(err, unix.ECONNREFUSED) {
		return nil
	}
	return err
}

// cleanAs is clean for who holds the lock of a state file that may have been removed
// by somebody, or replaced: the name may be another lab's now, and its things are.
func (p place) cleanAs(locked *os.File) error {
	if locked == nil || !sameFile(locked, p.stateFile()) {
		now, err := p.lock(true)
		if errors.Is(err, errLocked) {
			return nil
		}
		if err != nil {
			return err
		}
		defer now.Close()
	}
	return p.clean()
}

// poll calls f until it does not fail with errLocked, until limit has passed or ctx ends.
func poll(ctx context.Context, limit time.Duration, f func() error) error {
	late := time.After(limit)
	tick := time.NewTicker(lockPoll)
	defer tick.Stop()
	for {
		err := f()
		if !errors.Is(err, errLocked) {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		case <-late:
			return err
		}
	}
}

func tryLock(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return errLocked
	}
	if err != nil {
		return fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return nil
}

func sameFile(f *os.File, path string) bool {
	opened, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(path)
	return err == nil && os.SameFile(opened, named)
}

func owned(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}

// write replaces the contents of the locked state file. It stays the same file,
// for the lock's sake.
func (s state) write(locked *os.File) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := locked.Truncate(0); err != nil {
		return err
	}
	if _, err := locked.WriteAt(append(data, '\n'), 0); err != nil {
		return err
	}
	return nil
}

// clean removes what a lab that is over left behind. The caller holds the
// state file's lock, which goes with the file.
func (p place) clean() error {
	problems := errors.Join(cgroup.Remove(p.name), p.removeExternals())
	for _, path := range []string{p.logFile(), p.stateFile()} { // the state file last: it is what we are found by
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			problems = errors.Join(problems, err)
		}
	}
	return problems
}

// Sweep removes what labs of this user left whose processes have all died. It
// touches no lab that lives, is starting or is being taken down, and takes
// microseconds when there is nothing to do. Every command calls it first; that
// there is no state directory to sweep, what the command does next will say.
func Sweep() error {
	dir, err := stateDir()
	if err != nil {
		return nil
	}
	names, err := labNames(dir)
	if err != nil {
		return err
	}
	var problems error
	for _, name := range names {
		p := place{dir: dir, name: name}
		locked, err := p.lock(false)
		if err != nil {
			if !errors.Is(err, errLocked) && !errors.Is(err, fs.ErrNotExist) {
				problems = errors.Join(problems, fmt.Errorf("lab %s: %w", name, err))
			}
			continue
		}
		if errors.Is(p.unheard(), errLocked) { // it is not the file that the lab has locked
			locked.Close()
			continue
		}
		var s state
		if err := json.NewDecoder(locked).Decode(&s); err != nil && !errors.Is(err, io.EOF) {
			log.Printf("lab %s: its state file is broken (%v) and is removed", name, err)
		}
		if err := p.clean(); err != nil {
			problems = errors.Join(problems, fmt.Errorf("lab %s: %w", name, err))
		}
		locked.Close()
	}
	return problems
}

// labNames lists the labs that have state files.
func labNames(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), stateSuffix); ok && CheckName(name) == nil {
			names = append(names, name)
		}
	}
	return names, nil
}
