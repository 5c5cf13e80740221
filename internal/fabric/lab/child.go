package lab

import (
	"fmt"
	"log"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/ndklab/ndklab/internal/hosts"
	"github.com/ndklab/ndklab/internal/node"
	"github.com/ndklab/ndklab/internal/node/verbs"
	"golang.org/x/sys/unix"
)

// The parts of a lab, as argv[0] names them: ps shows them with the lab's name
// behind.
const (
	guardianName   = "ndklab-guardian"
	supervisorName = "ndklab-supervisor"
	engineName     = "ndklab-linkem"
	workerName     = "ndklab-worker"
	recorderName   = "ndklab-recorder"
	partName       = "ndklab-part"

	// DoctorName is that of no part of a lab: a worker starts it on a host that is only examined (package doctor).
	DoctorName = "ndklab-doctor"
)

// Child runs a part of a lab and exits, if that is what this process was
// started for; otherwise it returns at once. Every program that starts labs
// calls it first thing in main or TestMain, since a lab's processes are the
// program's own binary started under other names.
func Child() {
	var run func() error
	part, lab, _ := strings.Cut(os.Args[0], " ")
	switch {
	case node.IsAgent():
		run = node.Main
	case part == guardianName:
		run = func() error { return guard(lab) }
	case part == supervisorName:
		run = func() error { return supervise(lab) }
	case part == recorderName:
		run = func() error { return record(lab) }
	case part == engineName:
		run = runEngine
	case part == partName:
		run = runPart
	case hosts.IsWorker():
		part, run = workerName, work
	default:
		return
	}
	// Through /proc/self/exe the kernel has named us "exe".
	if err := os.WriteFile("/proc/self/comm", []byte(part), 0); err != nil {
		log.Printf("process name: %v", err)
	}
	log.SetPrefix(part + ": ")
	if err := run(); err != nil {
		log.Print(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// firstFile is the descriptor of a child's first inherited file.
const firstFile = 3

// inherited is a file that the parent passed on, which this process's own
// children do not inherit.
func inherited(fd int, name string) *os.File {
	unix.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), name)
}

// closeInherited closes the descriptors from firstFile on that the process has inherited and that it has not asked for
// (inherited). A lab that outlives the command which made it would otherwise keep open what that command's caller has:
// a lock, or the end of a pipe that somebody reads to its end.
func closeInherited() error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("close inherited files: %w", err)
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd < firstFile {
			continue
		}
		// Those that this process has opened itself have the flag. That of entries is closed by now.
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			unix.Close(fd)
		}
	}
	return nil
}

// partVariables are the variables that the parts of a lab have beside those of nodes: those
// that say where files are to be.
var partVariables = []string{"XDG_RUNTIME_DIR", "TMPDIR", "GOCOVERDIR", verbs.FolderVariable}

// childCommand is the named part of a lab, ready to start. Its standard error
// goes to the lab's log.
func childCommand(part, lab string, logFile *os.File, files ...*os.File) *exec.Cmd {
	return &exec.Cmd{
		Path:       "/proc/self/exe", // this very binary, even if its file was replaced since
		Args:       []string{part + " " + lab},
		Dir:        "/",
		Env:        node.Environment(partVariables...),
		Stderr:     logFile,
		ExtraFiles: files,
	}
}

// firstProblem returns the first line of a dead lab's log, which tells the user more than an
// exit status.
func firstProblem(logFile *os.File) string {
	buf := make([]byte, 4096)
	n, err := logFile.ReadAt(buf, 0)
	for line := range strings.Lines(string(buf[:n])) {
		if line = strings.TrimSpace(line); line != "" {
			return line
		}
	}
	return fmt.Sprintf("and logged nothing (%v)", err)
}
