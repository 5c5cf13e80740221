package examples_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/doctor"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/need"
	"github.com/ndklab/ndklab/internal/nobody"
)

// TestFabrics runs the examples that have switches, routers and impairments, as whoever runs the test and as an
// ordinary user. It requires no speed of them, nor that the machine keeps up with the links: both depend on the
// machine.
func TestFabrics(t *testing.T) {
	need.Labs(t, doctor.Examine(t.Context()).CanRun)
	for _, user := range accounts(t) {
		for example, checks := range map[string]int{"star": 6, "leaf-spine": 7, "impaired": 4} {
			t.Run(user.name+" "+example, func(t *testing.T) {
				if user.credential != nil {
					need.Time(t)
				}
				t.Parallel()
				data, err := os.ReadFile(example + ".ndklab.yaml")
				if err != nil {
					t.Fatal(err)
				}
				name := example + "-" + strconv.Itoa(os.Getpid())
				text := strings.NewReplacer("\nname: "+example+"\n", "\nname: "+name+"\n", "\n      mtu: 4200 ", "\n      overrun: allow\n      mtu: 4200 ").Replace(string(data))
				if !strings.Contains(text, name) || !strings.Contains(text, "overrun: allow") {
					t.Fatalf("the example is not as this test expects:\n%s", text)
				}
				file := filepath.Join(bin, name+"-"+user.name+".yaml")
				if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
				p := user.start(t, "ndklab", "run", "-v", file)
				if code := p.end(); code != 0 {
					t.Fatalf("exit code %d\n%s%s", code, &p.printed, &p.errors)
				}
				if got := len(regexp.MustCompile(`(?m)  ok$`).FindAllString(p.printed.String(), -1)); got != checks {
					t.Errorf("%d checks passed, want %d\n%s", got, checks, &p.printed)
				}
			})
		}
	}
}

// A program is an example with a program for RDMA: what it needs, and what is compiled for it.
type program struct {
	needs   []string
	compile []string
}

// ofPrograms are the examples with programs for RDMA, by name.
var ofPrograms = map[string]program{
	"perftest": {needs: []string{"ib_write_bw", "ib_send_lat", "ucmatose"}},
	"fio":      {needs: []string{"fio"}},
	"iser":     {needs: []string{"tgtd", "tgtadm", "iscsi-inq", "qemu-img"}},
	"mpi": {
		needs:   []string{"mpiexec.mpich", "mpicc.mpich"},
		compile: []string{"mpicc.mpich", "-O2", "-o", "bin/sum", "examples/mpi/sum.c"},
	},
	"all-reduce": {
		compile: []string{"cc", "-O2", "-o", "bin/all-reduce", "examples/all-reduce/all-reduce.c", "-lrdmacm", "-libverbs"},
	},
}

// prepare compiles the program in a folder that is laid out as the repository is, and skips the test where that cannot be.
func (p program) prepare(t *testing.T, folder string) {
	t.Helper()
	need.Check(t, need.Programs(p.needs...))
	if p.compile == nil {
		return
	}
	compile := exec.Command(p.compile[0], p.compile[1:]...)
	compile.Dir = folder
	if out, err := compile.CombinedOutput(); err != nil {
		need.Check(t, fmt.Errorf("%s: %w: %s", strings.Join(p.compile, " "), err, out))
	}
}

// buildVerbs builds the libraries that have programs use a node's adapter, in the folder, and returns where they are.
func buildVerbs(t *testing.T, folder string) (libraries string) {
	t.Helper()
	libraries = filepath.Join(folder, "verbs")
	if out, err := exec.Command("make", "-C", "..", "verbs", "VERBS_OUT="+libraries).CombinedOutput(); err != nil {
		t.Fatalf("make verbs: %v\n%s", err, out)
	}
	return libraries
}

// TestPrograms runs the examples with programs for RDMA, as whoever runs the test and as an ordinary user, with
// libraries that it builds, in a folder that is laid out as the repository is.
func TestPrograms(t *testing.T) {
	need.Labs(t, doctor.Examine(t.Context()).CanRun)
	need.Time(t)
	need.Check(t, need.Programs("cc"))
	folder := t.TempDir()
	libraries := buildVerbs(t, folder)
	if err := errors.Join(os.Chmod(folder, 0o755), os.Chmod(filepath.Dir(folder), 0o755), os.Chmod(libraries, 0o755),
		os.Mkdir(filepath.Join(folder, "bin"), 0o755), os.CopyFS(filepath.Join(folder, "examples"), os.DirFS("."))); err != nil {
		t.Fatal(err)
	}
	for example, of := range ofPrograms {
		t.Run(example, func(t *testing.T) {
			of.prepare(t, folder)
			for _, user := range accounts(t) {
				user.env = append(user.env, "NDKLAB_LIBRARIES="+libraries, "PATH="+os.Getenv("PATH")+":"+filepath.Join(folder, "bin"))
				user.folder = folder
				t.Run(user.name, func(t *testing.T) { runProgram(t, user, example) })
			}
		})
	}
}

// runProgram runs an example by a name of its own. It allows overruns: whether the machine keeps up with the
// links depends on the machine.
func runProgram(t *testing.T, user account, example string) {
	t.Helper()
	data, err := os.ReadFile(example + ".ndklab.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const link = "link: {mtu: 4200}"
	if !strings.Contains(string(data), link) {
		t.Fatalf("the example has no %q:\n%s", link, data)
	}
	file := filepath.Join(user.folder, "examples", example+".ndklab.yaml")
	if err := os.WriteFile(file, []byte(strings.Replace(string(data), link, "link: {mtu: 4200, overrun: allow}", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	name := example + "-" + strconv.Itoa(os.Getpid())
	p := user.start(t, "ndklab", "run", file, "--name", name, "--artifacts", filepath.Join(os.TempDir(), name+"-"+user.name))
	if code := p.end(); code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, &p.printed, &p.errors)
	}
}

// TestSuites plays the suites in virtual time; what links of this machine make of them is for
// the machine to say.
func TestSuites(t *testing.T) {
	for suite, least := range map[string]int{"suite": 16, "congestion": 13} {
		t.Run(suite, func(t *testing.T) {
			folder, err := filepath.Abs(suite)
			if err != nil {
				t.Fatal(err)
			}
			files, err := filepath.Glob(filepath.Join(folder, "*.ndklab.yaml"))
			if err != nil || len(files) < least {
				t.Fatalf("%d files, want %d at least, %v", len(files), least, err)
			}
			readme, err := os.ReadFile(filepath.Join(suite, "README.md"))
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				if name := filepath.Base(file); !strings.Contains(string(readme), "("+name+")") {
					t.Errorf("%s/README.md does not tell of %s", suite, name)
				}
			}
			cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "ndklab"), "run", folder, "--simulate", "--artifacts", t.TempDir())
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// TestCongestionInLab has the fabrics of examples/congestion run in labs of an ordinary user, slowly enough for the machine, and
// compares what comes of them with the simulator of the HPCC paper (docs/spec/congestion.md, rows 2 to 6 and 8): shares of the
// line within 15 points, nothing dropped, and the deadlock found. A machine that is busy makes hosts slow, so that the best of
// three runs counts. With DCQCN it makes them late to hear of marks, too: the victim, which has 96.5 % there, is to have more than
// the most that PFC alone may leave it.
func TestCongestionInLab(t *testing.T) {
	const line = 40e9 * 1024 / 1106 // what packets of 1 KiB leave of it
	for _, c := range []struct {
		file     string
		rate     float64               // of the line, for payload, bits per second
		shares   map[string][2]float64 // by workload: from and to how many per cent of that
		fairness float64
		dilation int           // hosts must hear of marks in time, PFC does not need them to
		length   time.Duration // to interrupt it after; 0: it ends
	}{
		{"incast-pfc", line / 4, map[string][2]float64{"incast": {85, 100}}, 0.95, 160, 0},
		{"victim-pfc", line, map[string][2]float64{"incast": {85, 100}, "victim": {26.4, 56.4}}, 0.95, 160, 0},
		{"victim-dcqcn", line, map[string][2]float64{"victim": {56.4, 100}}, 0, 400, 0},
		{"parking-lot-pfc", line, map[string][2]float64{"near": {35, 65}}, 0, 160, 0},
		{"parking-lot-dcqcn", line, map[string][2]float64{"near": {10, 40}}, 0, 400, 0},
		{"ring-deadlock", line, nil, 0, 160, 3 * time.Second},
	} {
		t.Run(c.file, func(t *testing.T) {
			var wrong string
			for range 3 {
				r := runSlowly(t, c.file, c.dilation, c.length)
				if wrong = differs(r, c.shares, c.rate, c.fairness, c.length > 0); wrong == "" {
					return
				}
				t.Log(wrong)
			}
			t.Error(wrong)
		})
	}
}

// runSlowly runs an example as an ordinary user, and returns its report.
func runSlowly(t *testing.T, file string, dilation int, length time.Duration) *report.Run {
	t.Helper()
	ctx := t.Context()
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "ndklab"), "run", "congestion/"+file+".ndklab.yaml", "--dilation", strconv.Itoa(dilation), "-o", "json", "--artifacts", t.TempDir())
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR=", "HOME=/nonexistent")
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: nobody.Credential()}
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if length > 0 {
		stop := time.AfterFunc(length, func() { _ = cmd.Process.Signal(os.Interrupt) }) // it may have ended
		defer stop.Stop()
	}
	err := cmd.Wait() // checks of the file may fail, which are a simulation's
	r := new(report.Run)
	if decode := json.Unmarshal(stdout.Bytes(), r); decode != nil {
		t.Fatalf("%v, %v\n%s", decode, err, stderr.Bytes())
	}
	return r
}

// differs says in what a run is not as a fabric with PFC; "" in nothing.
func differs(r *report.Run, shares map[string][2]float64, rate, fairness float64, deadlock bool) string {
	if deadlock {
		if len(r.Deadlocks) == 0 {
			return "there is no deadlock"
		}
		return ""
	}
	for _, w := range r.Workloads {
		share, ok := shares[w.Name]
		has := 100 * w.Gbps * 1e9 / rate
		switch {
		case w.Errors > 0:
			return fmt.Sprintf("%s has %d errors", w.Name, w.Errors)
		case ok && (has < share[0] || has > share[1]+0.5): // of rounding
			return fmt.Sprintf("%s has %.1f %% of the line, want %.1f to %.1f", w.Name, has, share[0], share[1])
		case len(w.Flows) > 1 && w.Fairness < fairness:
			return fmt.Sprintf("%s has a fairness of %v", w.Name, w.Fairness)
		}
	}
	for _, q := range report.Queues(r.Buffers) {
		if q.Drops() > 0 {
			return fmt.Sprintf("%s dropped %v", q.Endpoint, q.Dropped)
		}
	}
	return ""
}
