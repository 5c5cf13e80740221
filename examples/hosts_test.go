package examples_test

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ndklab/ndklab/internal/fabric/doctor"
	"github.com/ndklab/ndklab/internal/need"
)

// allowOverrun is for links that a busy machine does not keep up with.
const allowOverrun = "link.overrun=allow"

// TestSuiteOverHosts runs the suite over several hosts on this machine, as whoever runs the test over two and as an ordinary user
// over three: with the verdicts that it has on one. A machine that is busy is late, so that the best of three runs counts.
func TestSuiteOverHosts(t *testing.T) {
	need.Labs(t, doctor.Examine(t.Context()).CanRun)
	need.Time(t)
	for i, user := range accounts(t) {
		hosts := []string{"local:2", "local:3"}[i]
		t.Run(user.name, func(t *testing.T) {
			files, err := filepath.Glob("suite/*.ndklab.yaml")
			if err != nil || len(files) == 0 {
				t.Fatal(err)
			}
			for _, file := range files {
				t.Run(filepath.Base(file), func(t *testing.T) { user.play(t, file, hosts) })
			}
		})
	}
}

// play runs a file as the user, in whose folder it is copied, and returns its report.
func (a *account) play(t *testing.T, file, hosts string) (report map[string]any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	lab := strings.ReplaceAll(filepath.Base(file), ".ndklab.yaml", "")
	copied := filepath.Join(folder, filepath.Base(file))
	err = errors.Join(os.Chmod(folder, 0o777), os.Chmod(filepath.Dir(folder), 0o755), os.WriteFile(copied, text, 0o644))
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"run", copied, "--name", lab + "-" + strconv.Itoa(os.Getpid()), "--seed", "1", "--set", allowOverrun, "-o", "json", "--artifacts", filepath.Join(folder, "artifacts")}
	if hosts != "" {
		args = append(args, "--hosts", hosts)
	}
	var p *process
	for try := 1; ; try++ {
		p = a.start(t, "ndklab", args...)
		code := p.end()
		if code == 0 {
			break
		}
		if try == 3 {
			t.Fatalf("%s over %q: exit code %d\n%s%s", lab, hosts, code, &p.printed, &p.errors)
		}
	}
	if err := json.Unmarshal([]byte(p.printed.String()), &report); err != nil {
		t.Fatalf("%s: %v\n%s", lab, err, &p.printed)
	}
	return report
}

// TestHostWithoutNamespaces: where one host's user may not make namespaces, a lab does not start, and doctor says what is missing.
// An ssh of the test starts the workers, that of host b in a user namespace that allows no others.
func TestHostWithoutNamespaces(t *testing.T) {
	need.Labs(t, doctor.Examine(t.Context()).CanRun)
	need.Check(t, need.Programs("unshare", "setpriv"))
	users := accounts(t)
	user := users[len(users)-1] // root needs no user namespace
	if user.credential == nil && os.Geteuid() == 0 {
		t.Fatal("no ordinary user")
	}
	folder := t.TempDir()
	const script = `#!/bin/sh
[ "$6" = b ] || exec ndklab worker
exec unshare -U --map-user=65534 --map-group=65534 --keep-caps sh -c 'echo 0 >/proc/sys/user/max_user_namespaces; exec setpriv --ambient-caps=-all --inh-caps=-all ndklab worker'
`
	text, err := os.ReadFile("adapter.ndklab.yaml")
	err = errors.Join(err, os.Chmod(folder, 0o777), os.Chmod(filepath.Dir(folder), 0o755), os.WriteFile(filepath.Join(folder, "ssh"), []byte(script), 0o755),
		os.WriteFile(filepath.Join(folder, "adapter.ndklab.yaml"), text, 0o644))
	if err != nil {
		t.Fatal(err)
	}
	user.folder = folder
	user.env = append(user.env, "PATH="+folder+":"+bin+":"+os.Getenv("PATH"))
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"run", "adapter.ndklab.yaml", "--name", "adapter-" + strconv.Itoa(os.Getpid()), "--hosts", "a,b"}, 4,
			"host b is gone: its part does not start: no more namespaces are allowed (fork/exec /proc/self/exe: no space left on device): raise user.max_user_namespaces"},
		{[]string{"doctor", "--hosts", "a,b"}, 3, "b     cannot run  namespaces: user namespaces are turned off: user.max_user_namespaces is 0"},
	} {
		p := user.start(t, "ndklab", c.args...)
		code := p.end()
		if said := p.printed.String() + p.errors.String(); code != c.code || !strings.Contains(said, c.want) {
			t.Errorf("%s: exit code %d\n%s\nwant %d and %s", c.args[0], code, said, c.code, c.want)
		}
	}
}

// TestReportOverHosts: the report of a lab over two hosts has the fields that it has on one, and says which hosts there were.
func TestReportOverHosts(t *testing.T) {
	need.Labs(t, doctor.Examine(t.Context()).CanRun)
	user := accounts(t)[0]
	one, two := user.play(t, "adapter.ndklab.yaml", ""), user.play(t, "adapter.ndklab.yaml", "local:2")
	hosts, _ := two["hosts"].([]any)
	if len(hosts) != 2 {
		t.Fatalf("hosts: %v", two["hosts"])
	}
	delete(two, "hosts")
	if diff := cmp.Diff(slices.Sorted(maps.Keys(one)), slices.Sorted(maps.Keys(two))); diff != "" {
		t.Errorf("fields (-one host +two hosts):\n%s", diff)
	}
	link := two["links"].([]any)[0].(map[string]any)
	if got := link["hosts"]; !cmp.Equal(got, []any{"host1", "host2"}) {
		t.Errorf("hosts of the link: %v", got)
	}
}

// TestSlurm takes the walk of a cluster's user through a real Slurm of three hosts: a run in an allocation, as a batch job, as all tasks of a
// step, and one that asks for its hosts itself; the examination of hosts; a lab that stays up between commands; and scancel, after which nothing is left.
func TestSlurm(t *testing.T) {
	need.Time(t)
	err := need.Programs("slurmctld", "slurmd", "srun", "munged", "unshare", "nsenter", "ip")
	if os.Geteuid() != 0 {
		err = errors.Join(err, errors.New("root"))
	}
	need.Check(t, err)
	scripts, err := filepath.Abs("../internal/hosts/testdata/slurm")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	run := filepath.Join(folder, "run")
	script := func(name string, args ...string) {
		t.Helper()
		cmd := exec.Command(filepath.Join(scripts, name), args...)
		cmd.Env = append(os.Environ(), "DIR="+run, "NET=10.58.0", "CPUS=2", "SHARE="+folder, "EXTRA=SrunPortRange=61100-61139")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
	}
	if err := errors.Join(os.CopyFS(filepath.Join(folder, "bin"), os.DirFS(bin)), os.CopyFS(filepath.Join(folder, "examples"), os.DirFS(".")),
		exec.Command("chmod", "-R", "a+rwX", folder, filepath.Dir(folder)).Run()); err != nil {
		t.Fatal(err)
	}
	script("up.sh", "3")
	t.Cleanup(func() { script("down.sh") })
	// on runs a command on a host as an ordinary user, and returns its exit code and all that it prints.
	on := func(host, command string) (int, string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), filepath.Join(run, "on"), host, "sh", "-c", "cd "+folder+" && PATH=$PWD/bin:$PATH; export HOME=$PWD; "+command)
		cmd.Env = append(os.Environ(), "AS=nobody")
		out, err := cmd.CombinedOutput()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), string(out)
	}
	// waitUntilEmpty waits until no process of ndklab and no job is left.
	waitUntilEmpty := func(t *testing.T) {
		t.Helper()
		for _, host := range []string{"ctl", "host1", "host2", "host3"} {
			for {
				code, left := on(host, "pgrep -af '[n]dklab'; squeue -h")
				if code == 0 && strings.TrimSpace(left) == "" || t.Context().Err() != nil {
					break
				}
			}
		}
	}
	t.Run("programs", func(t *testing.T) {
		libraries := buildVerbs(t, folder)
		for _, example := range []string{"all-reduce", "iser", "mpi"} {
			t.Run(example, func(t *testing.T) {
				ofPrograms[example].prepare(t, folder)
				code, out := on("ctl", "NDKLAB_LIBRARIES="+libraries+" salloc -N 3 --exclusive ndklab run examples/"+example+".ndklab.yaml --set "+allowOverrun+" --hosts slurm")
				if code != 0 || !strings.Contains(out, "PASS: lab "+example) {
					t.Errorf("exit code %d\n%s", code, out)
				}
				waitUntilEmpty(t)
			})
		}
	})
	// long.ndklab.yaml is a lab that is still up when something befalls it.
	if code, out := on("ctl", "sed 's/duration: 3s/duration: 60s/' examples/pair.ndklab.yaml >long.ndklab.yaml"); code != 0 {
		t.Fatal(out)
	}
	for _, c := range []struct {
		name, command string
		code          int
		want          []string
	}{
		{"allocation", "salloc -N 3 --exclusive ndklab run examples/star.ndklab.yaml --set " + allowOverrun + " --hosts slurm", 0, []string{"PASS: lab star", "host3 "}},
		{"batch", "sbatch -W -N 2 -o out --wrap 'ndklab run examples/adapter.ndklab.yaml --set " + allowOverrun + " --hosts slurm'; code=$?; cat out; exit $code", 0, []string{"PASS: lab adapter"}},
		{"batch that fails", "(sed 's/^name: .*/name: failing/' examples/adapter.ndklab.yaml; echo 'checks: [{workload: write, messages: 1}]') >failing.ndklab.yaml; " +
			"sbatch -W -N 2 -o out --wrap 'ndklab run failing.ndklab.yaml --set " + allowOverrun + " --hosts slurm'; code=$?; cat out; exit $code", 1, []string{"(lab failing,"}},
		{"own allocation", "ndklab run examples/adapter.ndklab.yaml --set " + allowOverrun + " --hosts 'slurm:-N 2 -t 5'", 0, []string{"PASS: lab adapter"}},
		{"step", "srun -N 3 --mpi=pmi2 ndklab run examples/star.ndklab.yaml --set " + allowOverrun + " --hosts step", 0, []string{"PASS: lab star", "host3 "}},
		{"step that fails", "srun -N 2 --mpi=pmi2 ndklab run failing.ndklab.yaml --set " + allowOverrun + " --hosts step", 1, []string{"(lab failing,", "task 0: Exited with exit code 1"}},
		{"step without PMI", "srun -N 2 ndklab run examples/star.ndklab.yaml --hosts step", 2, []string{"expected srun --mpi=pmi2", "task 1: Exited with exit code 2"}},
		{"step of two tasks a host", "srun -N 2 -n 3 --overcommit --mpi=pmi2 ndklab run examples/star.ndklab.yaml --hosts step", 2, []string{"expected one task on each host: srun --ntasks-per-node=1"}},
		{"step without the file", `srun -N 2 --mpi=pmi2 sh -c '[ $SLURM_PROCID = 1 ] || cp examples/star.ndklab.yaml /tmp; exec ndklab run /tmp/star.ndklab.yaml --hosts step'`, 2,
			[]string{"task 1 on host host2: there is no file /tmp/star.ndklab.yaml"}},
		{"step of another file", `srun -N 2 --mpi=pmi2 sh -c 'cp examples/star.ndklab.yaml /tmp; echo "# $SLURM_PROCID" >>/tmp/star.ndklab.yaml; exec ndklab run /tmp/star.ndklab.yaml --hosts step'`, 2,
			[]string{"task 1 on host host2 has read another file of that name than task 0 on host host1"}},
		{"step that loses a host", `srun -N 3 --mpi=pmi2 sh -c '[ $SLURM_PROCID != 2 ] || (until grep -q "workload bulk: write" out; do sleep 0.1; done; kill -9 $$) & exec ndklab run long.ndklab.yaml --hosts step' >out 2>&1; ` +
			"code=$?; cat out; exit $code", 137, []string{"ndklab: host host3 is gone", "task 0: Exited with exit code 4"}},
		{"step cancelled", "srun -N 3 --mpi=pmi2 ndklab run long.ndklab.yaml --set " + allowOverrun + " --hosts step >out 2>&1 & until grep -q 'workload bulk: write' out; do sleep 0.1; done; " +
			"scancel $(squeue -h -o %i); wait $!; code=$?; cat out; exit $code", 130, []string{"ndklab: interrupted"}},
		{"network", "salloc -N 2 ndklab run examples/adapter.ndklab.yaml --set " + allowOverrun + " --hosts slurm --network 10.58.0.0/24", 0, []string{"PASS: lab adapter"}},
		{"no network", "salloc -N 2 ndklab run examples/adapter.ndklab.yaml --hosts slurm --network 10.99.0.0/16", 2, []string{"this machine has no address in it, expected the network of one of 10.58.0.254/24"}},
		{"ports", "salloc -N 2 sh -c 'ndklab up examples/star.ndklab.yaml --hosts slurm && ss -Hltnp | grep ndklab; ndklab down star'", 0, []string{":611"}},
		{"doctor", "salloc -N 3 ndklab doctor --hosts slurm", 0, []string{"host1  can run", "host3  can run", "labs can run on all hosts"}},
		{"no such partition", "ndklab run examples/adapter.ndklab.yaml --set " + allowOverrun + " --hosts 'slurm:-N 2 -p nosuch'", 4, []string{"invalid partition specified: nosuch"}},
		{"dry run", "salloc -Q -N 3 ndklab up examples/star.ndklab.yaml --hosts slurm --dry-run", 0, []string{"host1", "host2", "host3"}},
		{"no allocation", "ndklab run examples/adapter.ndklab.yaml --set " + allowOverrun + " --hosts slurm", 2, []string{"expected to be run by salloc or sbatch"}},
		{"stays up", `salloc -N 3 --exclusive sh -c 'ndklab up examples/star.ndklab.yaml --hosts slurm && ndklab exec star/h5 -- ping -c 1 10.0.0.1;
			echo piped | ndklab exec star/h5 -- cat; ndklab exec star/h5 -- sh -c "exit 7"; echo status $?; ndklab link set star/h1:eth0 delay=5ms; ndklab link show star; ndklab down star'`, 0,
			[]string{"1 received", "piped", "status 7", "delay=5ms", "lab star is down"}},
		{"cancelled", "ndklab run long.ndklab.yaml --set " + allowOverrun + " --hosts 'slurm:-N 2 -t 5' >out 2>&1 & until grep -q 'workload bulk: write' out; do sleep 0.1; done; " +
			"scancel $(squeue -h -o %i); wait $!; code=$?; cat out; exit $code", 4, []string{"ndklab: host host"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			// Commands wait for a line of the file out, which must not be the case before's: a shell opens the file of what it
			// runs in the background only then.
			code, out := on("ctl", "rm -f out; "+c.command)
			if code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			for _, want := range c.want {
				if !strings.Contains(out, want) {
					t.Errorf("%q is missing", want)
				}
			}
			if t.Failed() {
				t.Log(out)
			}
			waitUntilEmpty(t)
		})
	}
}
