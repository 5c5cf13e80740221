package manifest

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// crossing is a lab of two hosts; %s is how long its traffic between them lasts.
const crossing = `seed: 1
topology:
  nodes: {a: {host: 1}, b: {host: 2}}
  links: [{endpoints: ["a:eth0", "b:eth0"], mtu: 4200, delay: 1ms, overrun: allow}]
workloads:
  - {name: ping, from: a, to: b, operation: send, size: 64B, depth: 1, duration: %s, verify: true}
checks:
  - {workload: ping, errors: 0}
`

// lossy is a lab that goes on without its second host.
const lossy = `seed: 1
hosts: {on_loss: continue}
topology:
  nodes: {a: {host: 1}, c: {host: 1}, b: {host: 2}}
  links:
    - {endpoints: ["a:eth0", "c:eth0"], mtu: 4200, delay: 1ms, overrun: allow}
    - {endpoints: ["c:eth1", "b:eth0"], mtu: 4200, delay: 1ms, overrun: allow}
workloads:
  - {name: ping, from: a, to: c, operation: send, size: 64B, depth: 1, duration: 8s, verify: true}
checks:
  - {workload: ping, errors: 0}
`

// asIs edits nothing.
var asIs = strings.NewReplacer()

// TestKubernetes: on a real Kubernetes, the Job that is generated completes; whatever befalls a pod, it fails, nothing is left, and the
// first pod says why; and pods have the rights that they need, and no others.
func TestKubernetes(t *testing.T) {
	c := newCluster(t)
	t.Run("complete", c.testComplete)
	t.Run("faults", c.testFaults)
	t.Run("continue", c.testContinue)
	t.Run("capabilities", c.testCapabilities)
	t.Run("doctor", c.testDoctor)
}

func (c *cluster) testComplete(t *testing.T) {
	begun := time.Now()
	c.start(t, "whole", fmt.Sprintf(crossing, "3s"), asIs)
	c.isUp(t, "whole")
	first := run(t, c.kubectl("get", "pod", "-o", "name", "-l", pod("whole", 0)))
	if out, err := c.kubectl("exec", strings.TrimSpace(first), "--", "ndklab", "exec", "whole/b", "--", "/bin/ndklab", "version").CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "ndklab ") {
		t.Errorf("a command in a node of the second pod: %v\n%s", err, out)
	}
	c.await(t, "job/whole", "Complete")
	t.Logf("from apply to Complete, with 3 s of traffic: %v", time.Since(begun))
	if report := c.logs(t, "whole", 0); !strings.Contains(report, "PASS: lab whole") {
		t.Errorf("the first pod said\n%s", report)
	}
	gone(t, "whole")
}

func (c *cluster) testFaults(t *testing.T) {
	for _, f := range []struct {
		job   string
		kill  string // the process that begins so, JOB being the Job
		index int    // else, the pod that is deleted
		said  [2]string
	}{
		{job: "part-killed", kill: "ndklab-part JOB/JOB-1", said: [2]string{"host part-killed-1 is gone: its part has ended: signal: killed", "host part-killed-1: its part has ended: signal: killed"}},
		{job: "pod-killed", kill: "ndklab worker", said: [2]string{"host pod-killed-1 is gone: its process has ended", ""}},
		{job: "head-killed", kill: "ndklab-supervisor JOB", said: [2]string{"the lab's supervisor was killed, and the lab with it", "host head-killed-1: the head of the lab is gone: its process has ended"}},
		{job: "command-killed", kill: "ndklab run", said: [2]string{"", ""}},
		{job: "pod-deleted", index: 1, said: [2]string{"host pod-deleted-1 is gone: its worker got SIGTERM", ""}},
		{job: "first-deleted", index: 0, said: [2]string{"", ""}},
	} {
		t.Run(f.job, func(t *testing.T) {
			c.start(t, f.job, fmt.Sprintf(crossing, "10m"), asIs)
			c.isUp(t, f.job)
			begun := time.Now()
			if f.kill != "" {
				run(t, exec.Command("kill", "-9", find(t, f.job, strings.ReplaceAll(f.kill, "JOB", f.job)).pid))
			} else {
				run(t, c.kubectl("delete", "pod", "--wait=false", "-l", pod(f.job, f.index)))
			}
			gone(t, f.job)
			t.Logf("until nothing is left: %v", time.Since(begun))
			t.Logf("the Job: %s", c.await(t, "job/"+f.job, "Failed"))
			t.Logf("until the Job has failed: %v", time.Since(begun))
			for i, want := range f.said {
				if said := c.logs(t, f.job, i); !strings.Contains(said, want) {
					t.Errorf("pod %d said\n%s\nwant %s", i, said, want)
				} else {
					t.Logf("pod %d: %s", i, said)
				}
			}
		})
	}
}

// testContinue: a lab that goes on without a host does so when its pod is killed, to the end of its run.
func (c *cluster) testContinue(t *testing.T) {
	c.start(t, "lossy", lossy, asIs)
	c.isUp(t, "lossy")
	run(t, exec.Command("kill", "-9", find(t, "lossy", "ndklab worker").pid))
	c.await(t, "job/lossy", "Failed") // as the run: a node that is down is a problem
	report := c.logs(t, "lossy", 0)
	for _, want := range []string{"host lossy-1 is gone: its process has ended; the lab goes on", "workload ping done: messages: ", "FAIL: 1 problem"} {
		if !strings.Contains(report, want) {
			t.Errorf("the first pod said\n%s\nwant %s", report, want)
		}
	}
	gone(t, "lossy")
}

// testCapabilities: without any one of those in the manifest no lab is made, and the first pod says which it lacks.
func (c *cluster) testCapabilities(t *testing.T) {
	for _, without := range []string{"SYS_ADMIN", "NET_ADMIN", "NET_RAW"} {
		t.Run(without, func(t *testing.T) {
			job := "without-" + strings.ToLower(strings.ReplaceAll(without, "_", "-"))
			begun := time.Now()
			c.start(t, job, fmt.Sprintf(crossing, "1s"), strings.NewReplacer("["+without+", ", "[", " "+without+", ", " ", ", "+without+"]", "]"))
			message := c.await(t, "job/"+job, "Failed")
			t.Logf("from apply to Failed: %v: %s", time.Since(begun), message)
			said := c.logs(t, job, 0)
			for _, want := range []string{
				"this system does not let root without CAP_" + without + " make namespaces",
				"namespaces: the container (Kubernetes) lets nobody without CAP_" + without + " make namespaces",
				"remedy: in the pod's securityContext",
			} {
				if !strings.Contains(said, want) {
					t.Errorf("the first pod said\n%s\nwant %s", said, want)
				}
			}
			gone(t, job)
		})
	}
}

// testDoctor: `ndklab doctor` says in pods of which rights labs can run, as docs/hosts.md does.
func (c *cluster) testDoctor(t *testing.T) {
	const given = "runAsUser: 0, capabilities: {drop: [ALL], add: [SYS_ADMIN, NET_ADMIN, NET_RAW]}"
	for _, s := range []struct {
		name, context string
		can           bool
		states        map[string]string // of findings
		found         string            // in one that keeps labs from running
	}{
		{"usual", "{}", false, map[string]string{"isolation": "missing", "namespaces": "ok"}, "/proc/sys/net/ipv6/conf/default/disable_ipv6: read-only file system"},
		{"user", "{runAsUser: 1000}", false, map[string]string{"isolation": "missing", "namespaces": "ok"}, "read-only file system"},
		{"unconfined", "{runAsUser: 1000, seccompProfile: {type: Unconfined}}", false, map[string]string{"isolation": "missing", "namespaces": "ok"}, "read-only file system"},
		{"filtered", "{seccompProfile: {type: RuntimeDefault}}", false, map[string]string{"namespaces": "missing"}, "its seccomp filter refuses it"},
		{"given", "{" + given + "}", true, map[string]string{"priority": "limited", "node limits": "limited"}, ""},
		{"given-filtered", "{" + given + ", seccompProfile: {type: RuntimeDefault}}", true, map[string]string{"priority": "limited", "node limits": "limited"}, ""},
		{"privileged", "{privileged: true}", true, map[string]string{"node limits": "ok"}, ""},
	} {
		t.Run(s.name, func(t *testing.T) {
			phase := "Failed"
			if s.can {
				phase = "Succeeded"
			}
			c.apply(t, fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {restartPolicy: Never, containers: [{name: doctor, image: "%s", command: [ndklab, doctor, -o, json], securityContext: %s}]}}`, s.name, image, s.context))
			run(t, c.kubectl("wait", "--for=jsonpath={.status.phase}="+phase, "--timeout="+clusterTime.String(), "pod/"+s.name))
			said := run(t, c.kubectl("logs", "--tail=-1", s.name))
			var d struct {
				CanRun   bool `json:"can_run"`
				Findings []struct{ Name, State, Found, Remedy string }
			}
			if err := json.Unmarshal([]byte(said), &d); err != nil {
				t.Fatalf("%v\n%s", err, said)
			}
			if d.CanRun != s.can {
				t.Errorf("can run: %v", d.CanRun)
			}
			found := s.found == ""
			for _, f := range d.Findings {
				if want, is := s.states[f.Name]; is && f.State != want {
					t.Errorf("%+v, want %s", f, want)
				}
				found = found || f.State == "missing" && strings.Contains(f.Found, s.found) && strings.Contains(f.Remedy, "securityContext")
			}
			if !found {
				t.Errorf("nothing says %s:\n%s", s.found, said)
			}
		})
	}
}
