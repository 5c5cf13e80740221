// Package ci_test runs what the jobs for CI systems run, line by line.
package ci_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// A job has the contents of a CI job without the names of its steps.
type job struct {
	env   map[string]string
	lines []string // of shell
	keeps []string // files
}

func read(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
}

// jobs are those of both files, each on the first of its machines.
func jobs(t *testing.T) map[string]job {
	all := map[string]job{}
	github(t, all)
	gitlab(t, all)
	for _, name := range []string{"github/simulated", "github/labs", "gitlab/simulated", "gitlab/labs"} {
		if j := all[name]; len(j.lines) == 0 || len(j.keeps) == 0 {
			t.Fatalf("%s runs %q and keeps %q", name, j.lines, j.keeps)
		}
	}
	return all
}

func github(t *testing.T, all map[string]job) {
	var file struct {
		Env  map[string]string
		Jobs map[string]struct {
			Env   map[string]string
			Steps []struct {
				Run, Uses string
				With      map[string]string
			}
		}
	}
	read(t, "github.yml", &file)
	for name, found := range file.Jobs {
		j := job{env: map[string]string{"GITHUB_STEP_SUMMARY": "summary.md"}} // which the system sets
		maps.Copy(j.env, file.Env)
		for key, value := range found.Env {
			j.env[key] = strings.ReplaceAll(value, "${{ matrix.shard }}", "1")
		}
		for _, s := range found.Steps {
			if s.Run != "" {
				j.lines = append(j.lines, s.Run)
			}
			if strings.HasPrefix(s.Uses, "actions/upload-artifact@") {
				j.keeps = append(j.keeps, strings.Fields(s.With["path"])...)
			}
		}
		all["github/"+name] = j
	}
}

func gitlab(t *testing.T, all map[string]job) {
	var file map[string]yaml.Node
	read(t, "gitlab-ci.yml", &file)
	var common struct {
		Variables map[string]string
		Default   struct {
			Artifacts struct {
				Paths   []string
				Reports struct{ JUnit string }
			}
		}
	}
	read(t, "gitlab-ci.yml", &common)
	for name, node := range file {
		var found struct{ Script []string }
		if node.Kind != yaml.MappingNode || node.Decode(&found) != nil || found.Script == nil {
			continue // no job
		}
		j := job{map[string]string{"CI_NODE_INDEX": "1", "CI_NODE_TOTAL": "2"}, found.Script, // which the system sets
			append(slices.Clone(common.Default.Artifacts.Paths), common.Default.Artifacts.Reports.JUnit)}
		maps.Copy(j.env, common.Variables)
		all["gitlab/"+name] = j
	}
}

// root is the repository's.
const root = "../.."

// The suite and the make targets that a job names exist.
func TestRefersToWhatExists(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for name, j := range jobs(t) {
		if suite := filepath.Join(root, j.env["SUITE"]); !isSuite(suite) {
			t.Errorf("%s: no topology is in %s", name, j.env["SUITE"])
		}
		for _, line := range j.lines {
			for _, target := range regexp.MustCompile(`\bmake ([a-z-]+)`).FindAllStringSubmatch(line, -1) {
				if !regexp.MustCompile(`(?m)^` + target[1] + `:`).Match(makefile) {
					t.Errorf("%s: make has no target %s", name, target[1])
				}
			}
		}
	}
}

func isSuite(folder string) bool {
	found, err := filepath.Glob(filepath.Join(folder, "*.ndklab.yaml"))
	return err == nil && len(found) > 0
}

// quick is a lab that takes no time, and of which a check fails if it is wanted.
const quick = `name: %s
topology:
  nodes: {a: {}, b: {}}
  links: [{endpoints: ["a:eth0", "b:eth0"]}]
workloads: [{name: w, from: a, to: b, operation: write, size: 4KiB, count: 10, verify: true}]
checks: [{workload: w, errors: 0, latency_max: "<= %s"}]
`

// Every line of each job is run as it stands, but for a suite that takes no time and a command that has
// been built already; the job's verdict is that of the suite, and what it keeps is there.
func TestLines(t *testing.T) {
	ndklab := filepath.Join(t.TempDir(), "ndklab")
	build := exec.Command("go", "build", "-o", ndklab, "./cmd/ndklab")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	if out, err := exec.Command(ndklab, "doctor").CombinedOutput(); err != nil {
		t.Skipf("labs cannot run here:\n%s", out)
	}
	for name := range jobs(t) {
		for limit, passes := range map[string]bool{"1h": true, "1ns": false} {
			t.Run(fmt.Sprintf("%s/%t", name, passes), func(t *testing.T) {
				j, folder := jobs(t)[name], t.TempDir()
				for path, text := range map[string]string{
					"Makefile":              "build:\n\tmkdir -p bin\n\tln -s " + ndklab + " bin/ndklab\n",
					"path/sudo":             "#!/bin/sh\nexec \"$@\"\n", // who runs the test is who may
					"suite/a.txt":           "nothing to run\n",
					"suite/one.ndklab.yaml": fmt.Sprintf(quick, fmt.Sprintf("ci-%d-one", os.Getpid()), limit),
					"suite/two.ndklab.yaml": fmt.Sprintf(quick, fmt.Sprintf("ci-%d-two", os.Getpid()), limit),
				} {
					path = filepath.Join(folder, path)
					if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
						t.Fatal(err)
					}
				}
				j.env["SUITE"], j.env["PATH"] = "suite", filepath.Join(folder, "path")+":"+os.Getenv("PATH")
				failed := 0
				for _, line := range j.lines {
					cmd := exec.Command("bash", "-e", "-o", "pipefail", "-c", line)
					cmd.Dir, cmd.Env = folder, os.Environ()
					for name, value := range j.env {
						cmd.Env = append(cmd.Env, name+"="+value)
					}
					out, err := cmd.CombinedOutput()
					t.Logf("%s\n%s", line, out)
					if err != nil {
						failed++
					}
				}
				if wanted := map[bool]int{true: 0, false: 1}[passes]; failed != wanted {
					t.Errorf("%d lines failed, %d wanted", failed, wanted)
				}
				for _, file := range j.keeps {
					_, err := os.Stat(filepath.Join(folder, file))
					if evidence := file == "ndklab-artifacts"; err != nil && !(evidence && passes) {
						t.Errorf("the job keeps %s: %v", file, err)
					}
				}
				if name == "github/labs" {
					if text, err := os.ReadFile(filepath.Join(folder, j.env["GITHUB_STEP_SUMMARY"])); err != nil || !strings.Contains(string(text), map[bool]string{true: "PASS", false: "FAIL"}[passes]) {
						t.Errorf("the summary is %q, %v", text, err)
					}
				}
			})
		}
	}
}

// The documentation's command for suites elsewhere names this module's command.
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
