package examples_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/ndklab/ndklab/internal/fabric/doctor"
	"github.com/ndklab/ndklab/internal/need"
)

// TestFabrics runs the examples that have switches, routers and impairments, as whoever runs the test and as an
// ordinary user. It requires no speed of them, nor that the machine keeps up with the links: both depend on the
// machine.
func TestFabrics(t *testing.T) {
	if !doctor.Examine(t.Context()).CanRun {
		t.Skip("labs cannot run here: `ndklab doctor` says why")
	}
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

// ofPrograms are the examples with programs for RDMA, by name: what they need, and what is compiled for them.
var ofPrograms = map[string]struct {
	needs   []string
	compile []string
}{
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

// TestPrograms runs the examples with programs for RDMA, as whoever runs the test and as an ordinary user, with
// libraries that it builds, in a folder that is laid out as the repository is.
func TestPrograms(t *testing.T) {
	if !doctor.Examine(t.Context()).CanRun {
		t.Skip("labs cannot run here: `ndklab doctor` says why")
	}
	need.Time(t)
	need.Check(t, need.Programs("cc"))
	folder := t.TempDir()
	libraries := filepath.Join(folder, "verbs")
	if out, err := exec.Command("make", "-C", "..", "verbs", "VERBS_OUT="+libraries).CombinedOutput(); err != nil {
		t.Fatalf("make verbs: %v\n%s", err, out)
	}
	if err := errors.Join(os.Chmod(folder, 0o755), os.Chmod(filepath.Dir(folder), 0o755), os.Chmod(libraries, 0o755),
		os.Mkdir(filepath.Join(folder, "bin"), 0o755), os.CopyFS(filepath.Join(folder, "examples"), os.DirFS("."))); err != nil {
		t.Fatal(err)
	}
	for example, of := range ofPrograms {
		t.Run(example, func(t *testing.T) {
			need.Check(t, need.Programs(of.needs...))
			if of.compile != nil {
				compile := exec.Command(of.compile[0], of.compile[1:]...)
				compile.Dir = folder
				if out, err := compile.CombinedOutput(); err != nil {
					need.Check(t, fmt.Errorf("%s: %w: %s", strings.Join(of.compile, " "), err, out))
				}
			}
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

// TestCongestionInLab has a lab refuse each file with a shared buffer, which says what to do instead. The exit code is
// that of a file that is wrong: nothing has been built.
func TestCongestionInLab(t *testing.T) {
	files, err := filepath.Glob("congestion/*.ndklab.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "buffer:") {
			continue // a lab has all that it needs
		}
		out, err := exec.CommandContext(t.Context(), filepath.Join(bin, "ndklab"), "run", file).CombinedOutput()
		var status *exec.ExitError
		if !errors.As(err, &status) || status.ExitCode() != 2 {
			t.Errorf("%s: %v, want exit code 2\n%s", file, err, out)
		}
		refusal := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(file) + `:\d+:\d+: a node has a shared buffer, expected none in a lab: only a simulation \(--simulate\) .*$`)
		if !refusal.Match(out) {
			t.Errorf("%s: the refusal names no place or no remedy:\n%s", file, out)
		}
	}
}
