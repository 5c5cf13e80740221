package hosts

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/control"
)

// A pmiServer is the daemon of a step with some tasks: it answers them as slurmstepd does.
type pmiServer struct {
	tasks int

	mu     sync.Mutex // guards what follows
	values map[string]string
	fenced chan struct{} // closed when all tasks have come to the present fence
	come   int           // to that
}

// serve answers a task until it ends.
func (s *pmiServer) serve(conn net.Conn) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	if line, err := r.ReadString('\n'); err != nil || line != "cmd=init pmi_version=2 pmi_subversion=0\n" {
		return
	}
	fmt.Fprint(conn, "cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n")
	for {
		asked, err := readPMI(r)
		if err != nil {
			return
		}
		command := asked["cmd"]
		writePMI(conn, "cmd="+command+"-response;rc=0;"+s.answer(asked))
		if command == "finalize" {
			return
		}
	}
}

func (s *pmiServer) answer(asked map[string]string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch asked["cmd"] {
	case "kvs-put":
		s.values[asked["key"]] = asked["value"]
	case "kvs-get":
		value, found := s.values[asked["key"]]
		if !found {
			return "found=FALSE;"
		}
		return "found=TRUE;value=" + value + ";"
	case "kvs-fence":
		fenced := s.fenced
		if s.come++; s.come == s.tasks {
			close(fenced)
			s.fenced, s.come = make(chan struct{}), 0
		}
		s.mu.Unlock()
		<-fenced
		s.mu.Lock()
	}
	return ""
}

func readPMI(r io.Reader) (map[string]string, error) {
	head := make([]byte, 6)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	length, err := strconv.Atoi(strings.TrimSpace(string(head)))
	if err != nil {
		return nil, err
	}
	body := make([]byte, length)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, err
	}
	asked := map[string]string{}
	for pair := range strings.SplitSeq(string(body), ";") {
		key, value, _ := strings.Cut(pair, "=")
		asked[key] = value
	}
	return asked, nil
}

func writePMI(w io.Writer, text string) { fmt.Fprintf(w, "%6d%s", len(text), text) }

// pmiPair returns the two ends of a socket such as a task inherits.
func pmiPair(t *testing.T) (inherited int, theirs net.Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fds[1]), "daemon")
	defer f.Close()
	if theirs, err = net.FileConn(f); err != nil {
		t.Fatal(err)
	}
	return fds[0], theirs
}

// stepVariables are those of a task of three.
func stepVariables(rank, fd int) func(string) string {
	all := map[string]string{
		"SLURM_PROCID": strconv.Itoa(rank), "SLURM_STEP_NUM_TASKS": "3", "SLURM_STEP_ID": "0", "SLURMD_NODENAME": "host" + strconv.Itoa(rank+1),
		"PMI_FD": strconv.Itoa(fd), "PMI_JOBID": "7.0",
	}
	return func(name string) string { return all[name] }
}

// inStep runs what each task of a step of three does.
func inStep(t *testing.T, do func(s *Step)) {
	t.Helper()
	server := &pmiServer{tasks: 3, values: map[string]string{}, fenced: make(chan struct{})}
	var all sync.WaitGroup
	defer all.Wait()
	for rank := range server.tasks {
		fd, theirs := pmiPair(t)
		all.Go(func() { server.serve(theirs) })
		all.Go(func() {
			s, err := OpenStep(testContext(t), stepVariables(rank, fd))
			if err != nil {
				t.Errorf("task %d: %v", rank, err)
				theirs.Close()
				return
			}
			defer s.pmi.conn.Close()
			do(s)
		})
	}
}

// TestStepAnnounces: tasks meet, and what the first announces reaches the others, however long it is.
func TestStepAnnounces(t *testing.T) {
	want := assignment{Credentials: "secret"}
	for i := range 200 {
		want.Addresses = append(want.Addresses, fmt.Sprintf("10.0.0.%d:4711", i))
	}
	inStep(t, func(s *Step) {
		if err := s.Meet(testContext(t), []string{"run", "f"}, "digest", nil); err != nil {
			t.Errorf("task %d: %v", s.rank, err)
		}
		if s.Leads() {
			h := &Head{settings: settings{Addresses: want.Addresses, Credentials: want.Credentials}, Announce: s.Announce}
			if err := h.announce(testContext(t)); err != nil {
				t.Error(err)
			}
			if err := s.Refuse(testContext(t), 4); err != nil { // which is too late, and does nothing
				t.Error(err)
			}
			return
		}
		said, err := s.await(testContext(t))
		var got assignment
		err = errors.Join(err, json.Unmarshal([]byte(said.Assignment), &got))
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("task %d: %v %s", s.rank, err, diff)
		}
	})
}

// TestStepRefuses: one task that cannot keeps all from it. The first says which, and the others have its exit code.
func TestStepRefuses(t *testing.T) {
	inStep(t, func(s *Step) {
		var problem error
		if s.rank == 2 {
			problem = errors.New("there is no file f;\nnone")
		}
		err := s.Meet(testContext(t), []string{"run", "f"}, "digest", problem)
		if !s.Leads() {
			code, followErr := s.Follow(testContext(t))
			if code != 2 || err != nil || followErr != nil {
				t.Errorf("task %d: %d, %v, %v", s.rank, code, err, followErr)
			}
			return
		}
		if want := "--hosts step: task 2 on host host3: there is no file f;\nnone"; err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
		if err := s.Refuse(testContext(t), 2); err != nil {
			t.Error(err)
		}
	})
}

// TestStepAbsent: a task that never comes is said to be absent, when the time for that is over.
func TestStepAbsent(t *testing.T) {
	fd, theirs := pmiPair(t)
	served, fenced := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(served)
		(&pmiServer{tasks: 3, values: map[string]string{}, fenced: fenced}).serve(theirs)
	}()
	s, err := OpenStep(testContext(t), stepVariables(0, fd))
	if err != nil {
		t.Fatal(err)
	}
	over, end := context.WithCancelCause(testContext(t))
	end(errAbsent)
	err = s.Meet(over, nil, "", nil)
	if want := "--hosts step: not all tasks of the step came within 1m0s, expected each to run the same command"; err == nil || err.Error() != want || control.CodeOf(err) != control.Unable {
		t.Errorf("%v, want %s", err, want)
	}
	if err := s.Refuse(testContext(t), 3); err != nil { // there is nobody to be waited for
		t.Error(err)
	}
	s.pmi.conn.Close()
	close(fenced) // the daemon may have been told that this task has come
	<-served
}

func TestAgree(t *testing.T) {
	good := func() []task {
		return []task{{"a", "b1", "run f", "d", ""}, {"b", "b1", "run f", "d", ""}, {"c", "b1", "run f", "d", ""}}
	}
	if err := agree(good()); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		change func(*task)
		want   string
		code   control.Code
	}{
		{func(t *task) { t.Host = "a" }, "tasks 0 and 2 are both on host a, expected one task on each host: srun --ntasks-per-node=1", control.Usage},
		{func(t *task) { t.Build = "b2" }, "host c runs another build of ndklab (b2) than this one (b1)", control.Unable},
		{func(t *task) { t.Command = "run g" }, "task 2 on host c runs `ndklab run g`, and task 0 `ndklab run f`, expected the same", control.Usage},
		{func(t *task) { t.Problem, t.File = "no file", "" }, "task 2 on host c: no file", control.Usage},
		{func(t *task) { t.File = "e" }, "task 2 on host c has read another file of that name than task 0 on host a", control.Usage},
	} {
		met := good()
		c.change(&met[2])
		if err := agree(met); err == nil || !strings.Contains(err.Error(), c.want) || control.CodeOf(err) != c.code {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}

// TestOpenStepRefuses: what is no task of a step that can find the others is told how to be one.
func TestOpenStepRefuses(t *testing.T) {
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Dup(int(file.Fd())) // closed by OpenStep
	file.Close()
	if err != nil {
		t.Fatal(err)
	}
	full := stepVariables(0, fd)
	for missing, want := range map[string]string{
		"SLURM_PROCID": "this is no task of a Slurm step, expected to be run by srun: srun -N 8 --mpi=pmi2", "SLURM_STEP_ID": "this is no task of a Slurm step",
		"PMI_FD": "PMI_FD is not set), expected srun --mpi=pmi2; or, once in the allocation, ndklab run FILE --hosts slurm",
		"":       "expected the socket that srun --mpi=pmi2 gives each task",
	} {
		_, err := OpenStep(testContext(t), func(name string) string {
			if name == missing {
				return ""
			}
			return full(name)
		})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("without %q: %v, want %s", missing, err, want)
		}
	}
}

// TestPMIWire: what is written are the bytes that Slurm reads.
func TestPMIWire(t *testing.T) {
	here, there := net.Pipe()
	heard := make(chan string, 1)
	go func() {
		var all bytes.Buffer
		r := bufio.NewReader(io.TeeReader(there, &all))
		if _, err := r.ReadString('\n'); err == nil {
			fmt.Fprint(there, "cmd=response_to_init rc=0\n")
		}
		for {
			asked, err := readPMI(r)
			if err != nil {
				heard <- all.String()
				return
			}
			writePMI(there, "cmd="+asked["cmd"]+"-response;rc=0;found=TRUE;value=.YQ;")
		}
	}()
	ctx := testContext(t)
	p, err := openPMI(ctx, here, "7.0", 1)
	if err != nil {
		t.Fatal(err)
	}
	got, getErr := p.get(ctx, "k")
	if err := errors.Join(p.put(ctx, "k", "a"), p.fence(ctx), getErr, p.close(ctx)); err != nil || got != "a" {
		t.Fatalf("%q, %v", got, err)
	}
	want := "cmd=init pmi_version=2 pmi_subversion=0\n" +
		"    51cmd=fullinit;pmijobid=7.0;pmirank=1;threaded=FALSE;" +
		"    39cmd=kvs-get;jobid=7.0;srcid=-1;key=k-0;" +
		"    30cmd=kvs-put;key=k-0;value=.YQ;" +
		"    14cmd=kvs-fence;" +
		"    13cmd=finalize;"
	if diff := cmp.Diff(want, <-heard); diff != "" {
		t.Error(diff)
	}
}

// TestPMIAnswers: an answer that is none is said to be.
func TestPMIAnswers(t *testing.T) {
	for answer, want := range map[string]string{
		"    38cmd=kvs-get-response;rc=0;found=FALSE;":     "PMI-2: nobody has put k",
		"    42cmd=kvs-get-response;rc=14;errmsg=no jobs;": "PMI-2: kvs-get: refused (rc=14): no jobs",
		"    21cmd=kvs-put-response;":                      `the answer is "cmd=kvs-put-response;", expected kvs-get-response`,
		"abcdef":                                           `the answer's length is "abcdef", expected a number`,
		"    50cmd=":                                       "PMI-2: kvs-get: unexpected EOF",
		"    51cmd=kvs-get-response;rc=0;found=TRUE;value=.!!!!!!;": "PMI-2: k: illegal base64",
	} {
		here, there := net.Pipe()
		go func() {
			_, err := readPMI(there)
			if err == nil {
				fmt.Fprint(there, answer)
			}
			there.Close()
		}()
		p := &pmi{conn: here, r: bufio.NewReader(here), job: "7.0"}
		if _, err := p.get(testContext(t), "k"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", answer, err, want)
		}
		here.Close()
	}
}
