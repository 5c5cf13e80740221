// Package ci_test runs what the jobs for CI systems run: each step of the action for GitHub and each line of the component for
// GitLab, as the systems would.
package ci_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ndklab/ndklab/internal/need"
)

// root is the repository's.
const root = "../.."

// A job has what a system runs of a CI job.
type job struct {
	env     map[string]string // which the system sets
	folders []string          // variables of env that name folders, which are relative to the job's
	steps   []step
	keeps   []string // files and folders
}

// A step is a text for a shell.
type step struct {
	shell  []string // the command of the shell, before the text
	text   string
	env    map[string]string
	always bool // also after one that failed
}

// jobs are those of both files, each on the first of its machines, with the inputs that are given in place of the files' own.
func jobs(t *testing.T, inputs map[string]string) map[string]job {
	all := map[string]job{}
	github(t, inputs, all)
	gitlab(t, inputs, all)
	for _, name := range []string{"github/simulated", "github/labs", "gitlab/simulated", "gitlab/labs"} {
		if j := all[name]; len(j.steps) == 0 || len(j.keeps) == 0 {
			t.Fatalf("%s runs %v and keeps %q", name, j.steps, j.keeps)
		}
	}
	return all
}

// run runs a job in its folder. It returns the exit code of the step that failed, or 0, and what all have printed.
func (j job) run(t *testing.T, folder string) (code int, output string) {
	t.Helper()
	env := append(os.Environ(), "no_proxy=127.0.0.1") // where releases are served
	for name, value := range j.env {
		if slices.Contains(j.folders, name) {
			value = filepath.Join(folder, value)
		}
		env = append(env, name+"="+value)
	}
	added := filepath.Join(folder, j.env["GITHUB_PATH"])
	for _, s := range j.steps {
		if code != 0 && !s.always {
			continue
		}
		cmd := exec.Command(s.shell[0], append(s.shell[1:], s.text)...)
		cmd.Dir, cmd.Env = folder, slices.Clone(env)
		for name, value := range s.env {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
		if j.env["GITHUB_PATH"] != "" { // a system puts folders of steps before PATH
			if lines, err := os.ReadFile(added); err == nil {
				cmd.Env = append(cmd.Env, "PATH="+strings.TrimSpace(string(lines))+":"+os.Getenv("PATH"))
			}
		}
		out, err := cmd.CombinedOutput()
		output += string(out)
		if err != nil {
			if code != 0 {
				t.Errorf("a step fails after another: %v\n%s", err, out)
			}
			code = cmd.ProcessState.ExitCode()
		}
	}
	return code, output
}

// The suites that jobs name exist.
func TestRefersToWhatExists(t *testing.T) {
	for name, j := range jobs(t, nil) {
		var suite string
		for _, s := range append(j.steps, step{env: j.env}) {
			if files := s.env["INPUT_FILES"]; files != "" {
				suite = files
			}
		}
		if found, err := filepath.Glob(filepath.Join(root, suite, "*.ndklab.yaml")); err != nil || suite == "" || len(found) == 0 {
			t.Errorf("%s: no topology is in %q: %v", name, suite, err)
		}
	}
}

// quick is a lab that takes no time, and of which a check fails if it is wanted.
const quick = `name: %s
topology:
  nodes: {a: {}, b: {}}
  links: [{endpoints: ["a:eth0", "b:eth0"]}]
workloads: [{name: w, from: a, to: b, operation: write, size: 4KiB, count: 10, verify: true}]
checks: [{workload: w, errors: 0, latency_max: "<= %s"}]
`

// Every step of each job is run as it stands, but for a suite that takes no time and a release that is served here. The
// exit code is that of the suite, and what the job keeps is there; or a release cannot be installed, and nothing is run.
func TestLines(t *testing.T) {
	programs := build(t)
	releases := serve(t, map[string]release{
		"v1.2.0": {amd64: programs, arm64: programs},
		"v1.2.1": {amd64: programs, arm64: programs, wrong: true},
	}, "v1.2.0")
	labs := exec.Command(programs("ndklab"), "doctor").Run() == nil
	for _, c := range []struct {
		name, limit, version string
		code                 int
		says                 string
		has, lacks           []string
	}{
		{"passes", "1h", "", 0, "ndklab v1.2.0 is in ", []string{"report.txt", "junit.xml", "report.html"}, []string{"ndklab-artifacts"}},
		{"fails", "1ns", "1.2.0", 1, "FAIL", []string{"report.txt", "junit.xml", "report.html", "ndklab-artifacts"}, nil},
		{"wrong checksum", "1h", "v1.2.1", 3, "ndklab: wrong checksum: " + releases + "/download/v1.2.1/ndklab_1.2.1_linux_", nil, []string{"."}},
		{"no such version", "1h", "v9.9.9", 2, "ndklab: there is no release v9.9.9: nothing is at " + releases + "/download/v9.9.9/SHA256SUMS, ", nil, []string{"."}},
	} {
		inputs := map[string]string{"files": "suite", "releases": releases}
		if c.version != "" {
			inputs["version"] = c.version
		}
		for name, j := range jobs(t, inputs) {
			t.Run(name+"/"+c.name, func(t *testing.T) {
				if strings.HasSuffix(name, "/labs") {
					need.Labs(t, labs)
				}
				folder := t.TempDir()
				write(t, folder, map[string]string{
					"temp/empty":            "",
					"suite/a.txt":           "nothing to run\n",
					"suite/one.ndklab.yaml": fmt.Sprintf(quick, fmt.Sprintf("ci-%d-one", os.Getpid()), c.limit),
					"suite/two.ndklab.yaml": fmt.Sprintf(quick, fmt.Sprintf("ci-%d-two", os.Getpid()), c.limit),
				})
				code, output := j.run(t, folder)
				t.Log(output)
				if code != c.code || !strings.Contains(output, c.says) {
					t.Errorf("the exit code is %d, want %d and %q", code, c.code, c.says)
				}
				for _, file := range c.has {
					if _, err := os.Stat(filepath.Join(folder, "ndklab-results", file)); err != nil {
						t.Errorf("of the results: %v", err)
					}
				}
				for _, file := range c.lacks {
					if _, err := os.Stat(filepath.Join(folder, "ndklab-results", file)); err == nil {
						t.Errorf("the results have %s", file)
					}
				}
				for _, file := range j.keeps {
					if _, err := os.Stat(filepath.Join(folder, file)); (err == nil) != (len(c.has) > 0) {
						t.Errorf("the job keeps %s: %v", file, err)
					}
				}
				if summary := j.env["GITHUB_STEP_SUMMARY"]; summary != "" {
					text, err := os.ReadFile(filepath.Join(folder, summary))
					if verdict := map[int]string{0: "PASS", 1: "FAIL"}[c.code]; (err == nil) != (verdict != "") || !strings.Contains(string(text), verdict) {
						t.Errorf("the summary is %q, %v", text, err)
					}
				}
			})
		}
	}
}

// The documentation's command for other systems names this module's command.
func TestInstall(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	module, err := exec.Command("go", "list", root+"/cmd/ndklab").Output()
	if err != nil {
		t.Fatal(err)
	}
	if want := "go install " + strings.TrimSpace(string(module)) + "@latest"; !slices.ContainsFunc(strings.Split(string(text), "\n"), func(line string) bool { return strings.HasSuffix(line, want) }) {
		t.Errorf("no line ends in %q", want)
	}
}

// merge returns one map of two; the second comes first.
func merge(a, b map[string]string) map[string]string {
	both := maps.Clone(a)
	maps.Copy(both, b)
	return both
}

// write makes files, all of which are executable.
func write(t *testing.T, folder string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}
