package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/need"
)

// envCluster names the folder with what testdata/kubernetes/build.sh has built.
const envCluster = "NDKLAB_TEST_KUBERNETES"

// clusterTime bounds whatever a test waits for.
const clusterTime = 3 * time.Minute

// image is that of ndklab in the cluster.
const image = "docker.io/library/ndklab:test"

// A cluster is a real Kubernetes of two hosts in namespaces, for the time of a test. dir is that of the Slurm whose hosts they are,
// and program is ndklab.
type cluster struct{ dir, program string }

func newCluster(t *testing.T) *cluster {
	t.Helper()
	need.Time(t)
	err := need.Programs("slurmctld", "slurmd", "munged", "etcd", "containerd", "ctr", "runc", "openssl", "unshare", "nsenter", "ip")
	if os.Geteuid() != 0 {
		err = errors.Join(err, errors.New("root"))
	}
	if _, missing := os.Stat("/usr/lib/cni/ptp"); missing != nil { // where Debian has the plugins
		err = errors.Join(err, missing)
	}
	built := os.Getenv(envCluster)
	if built == "" {
		err = errors.Join(err, errors.New("a Kubernetes, which `make kubernetes` builds"))
	}
	need.Check(t, err)
	c := &cluster{dir: t.TempDir(), program: filepath.Join(t.TempDir(), "ndklab")}
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", c.program, "../../../cmd/ndklab")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	run(t, build)
	script := func(name string, args ...string) {
		cmd := exec.Command("../testdata/"+name, args...)
		cmd.Env = append(os.Environ(), "DIR="+c.dir, "NET=10.58.0", "CPUS=2", "CPUGROUPS=1", "SHARE="+built)
		run(t, cmd)
	}
	script("slurm/up.sh", "2")
	t.Cleanup(func() { script("slurm/down.sh") })
	script("kubernetes/up.sh", built, "ndklab="+c.program)
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := c.kubectl("get", "events,jobs,pods", "-o", "wide").CombinedOutput()
			t.Logf("%s", out)
		}
	})
	return c
}

// run runs a command, and returns what it prints.
func run(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	return string(out)
}

func (c *cluster) kubectl(args ...string) *exec.Cmd {
	return exec.Command(filepath.Join(c.dir, "kubectl"), args...)
}

// apply has the cluster make the objects of a text.
func (c *cluster) apply(t *testing.T, text string) {
	t.Helper()
	cmd := c.kubectl("apply", "--server-side", "-f", "-")
	cmd.Stdin = strings.NewReader(text)
	run(t, cmd)
}

// start has the cluster run the lab of a file as a user would, and returns when its Job is made. The manifest is edited by edit.
func (c *cluster) start(t *testing.T, name, text string, edit *strings.Replacer) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "lab.ndklab.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	manifest := run(t, exec.Command(c.program, "generate", "kubernetes", file, "--hosts", "2", "--image", image, "--name", name))
	// Requests are for hosts that the pods have to themselves.
	manifest = strings.ReplaceAll(manifest, `requests: {cpu: "2", memory: 2Gi}`, "requests: {cpu: 100m, memory: 64Mi}")
	run(t, c.kubectl("create", "secret", "generic", name+"-key", "--from-literal=key="+strings.Repeat("k", 44)))
	c.apply(t, edit.Replace(manifest))
}

// await waits for a condition of an object, and returns the message of the condition.
func (c *cluster) await(t *testing.T, object, condition string) string {
	t.Helper()
	run(t, c.kubectl("wait", "--for=condition="+condition, "--timeout="+clusterTime.String(), object))
	return run(t, c.kubectl("get", object, "-o", `jsonpath={.status.conditions[?(@.type=="`+condition+`")].message}`))
}

// pod selects the pod of an index of a Job.
func pod(job string, index int) string {
	return fmt.Sprintf("batch.kubernetes.io/job-name=%s,batch.kubernetes.io/job-completion-index=%d", job, index)
}

// logs returns what a pod of a Job has printed.
func (c *cluster) logs(t *testing.T, job string, index int) string {
	t.Helper()
	return run(t, c.kubectl("logs", "--tail=-1", "-l", pod(job, index)))
}

// isUp waits until the lab of a Job is up, and its traffic has begun.
func (c *cluster) isUp(t *testing.T, job string) {
	t.Helper()
	eventually(t, func() string {
		// It fails of a pod that does not run yet.
		said, _ := c.kubectl("logs", "--tail=-1", "-l", pod(job, 0)).CombinedOutput()
		if !strings.Contains(string(said), "workload ping: send") {
			return "there is no traffic: " + string(said)
		}
		return ""
	})
}

// A process is one in a pod, as the machine of the test sees it.
type process struct {
	pid         string
	words       string // of its command line
	environment string
}

// processes returns those of the pods of a Job, which have its name in their environment or in their own name.
func processes(t *testing.T, job string) (all []process) {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		p := process{pid: filepath.Base(dir)}
		for file, to := range map[string]*string{"cmdline": &p.words, "environ": &p.environment} {
			// It fails of one that ends just now.
			text, _ := os.ReadFile(filepath.Join(dir, file))
			*to = string(bytes.ReplaceAll(text, []byte{0}, []byte{' '}))
		}
		if strings.HasPrefix(p.words, "ndklab") && (strings.Contains(p.environment, "NDKLAB_POD_JOB="+job+" ") || strings.Contains(p.words, " "+job+"/") || strings.Contains(p.words, " "+job+" ")) {
			all = append(all, p)
		}
	}
	return all
}

// find returns the process of a Job that begins so.
func find(t *testing.T, job, words string) process {
	t.Helper()
	all := processes(t, job)
	for _, p := range all {
		if strings.HasPrefix(p.words, words+" ") {
			return p
		}
	}
	t.Fatalf("there is no %s among %v", words, all)
	return process{}
}

// gone waits until no process of a Job is left.
func gone(t *testing.T, job string) {
	t.Helper()
	eventually(t, func() string {
		var left []string
		for _, p := range processes(t, job) {
			left = append(left, p.pid+" "+p.words)
		}
		return strings.Join(left, "\n")
	})
}

// eventually waits until missing returns "".
func eventually(t *testing.T, missing func() string) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.After(clusterTime)
	for what := missing(); what != ""; what = missing() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal(what)
		}
	}
}
