package programs

import (
	"bufio"
	"compress/gzip"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/fabric/labtest"
	"github.com/ndklab/ndklab/internal/need"
)

// The package with rdma-core's tests and the Python modules that they use, and where it has
// the tests: documentation, which some machines leave out.
const (
	pythonOfModules = "/usr/bin/python3" // for which the distribution has them
	testsPackage    = "python3-pyverbs"
	testsFolder     = "usr/share/doc/rdma-core/tests"
)

// passing are the tests that pass, of releases.
//
//go:embed testdata/rdma-core-*.txt
var passing embed.FS

// suiteTime bounds a run of all of them.
const suiteTime = 3 * time.Minute

// TestRDMACore runs rdma-core's own tests in a node, with both ends there, wherever the engine
// is: those that testdata names pass, and none fails.
func TestRDMACore(t *testing.T) {
	fit(t)
	version, err := installedVersion("source:Upstream-Version")
	need.Check(t, err)
	want, err := namesOf(version)
	need.Check(t, err)
	tests := filepath.Join(t.TempDir(), "tests")
	need.Check(t, fetchTests(t, tests))

	l := labtest.Up(t, labtest.Topology().Hosts("server", "client").Link("server", "client"))
	for name, of := range map[string]struct{ variable, skips string }{
		"in the program": {},
		// Where there are no implicit regions.
		"in a process of its own": {apart, "implicit"},
	} {
		t.Run(name, func(t *testing.T) {
			pass := slices.DeleteFunc(slices.Clone(want), func(name string) bool { return of.skips != "" && strings.Contains(name, of.skips) })
			runSuite(t, l.In(t), of.variable+"PYTHONDONTWRITEBYTECODE=1 "+pythonOfModules+" -u "+tests+"/run_tests.py --dev ndk0 -v", pass)
		})
	}
}

// runSuite runs tests by a command, of which those must pass.
func runSuite(t *testing.T, l *labtest.Lab, command string, pass []string) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(l.Context(), suiteTime, errors.New("it takes too long"))
	defer cancel()
	suite := start(ctx, t, l, "client", command)
	ended := suite.wait()
	all := resultsIn(suite.output.String())
	if ended != nil || len(all.failed) > 0 {
		t.Errorf("%v: %d tests fail: %q\n%s", ended, len(all.failed), all.failed, suite.output.String())
	}
	if missing := slices.DeleteFunc(pass, func(name string) bool { return slices.Contains(all.passed, name) }); len(missing) > 0 {
		t.Errorf("%d tests do not pass: %q\n%s", len(missing), missing, suite.output.String())
	}
	if all.ran != len(all.passed)+len(all.skipped)+len(all.failed) {
		t.Errorf("%d tests ran, of which %d passed, %d were skipped and %d failed", all.ran, len(all.passed), len(all.skipped), len(all.failed))
	}
	t.Logf("%d tests pass, %d are skipped", len(all.passed), len(all.skipped))
}

// TestClocks reads the times of a completion, by the Python modules.
func TestClocks(t *testing.T) {
	fit(t)
	_, err := installedVersion("Version")
	need.Check(t, err)
	script := filepath.Join(t.TempDir(), "clock.py")
	if err := os.WriteFile(script, clockScript, 0o644); err != nil {
		t.Fatal(err)
	}
	l := labtest.Up(t, labtest.Topology().Hosts("server", "client").Link("server", "client"))
	if out, err := l.Node("client").Run(l.Context(), pythonOfModules, script); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

//go:embed testdata/clock.py
var clockScript []byte

// installedVersion is the version of the package that is installed, in a form that
// dpkg-query knows.
func installedVersion(form string) (string, error) {
	out, err := exec.Command("dpkg-query", "-W", "-f", "${"+form+"}", testsPackage).Output()
	if err == nil && len(out) == 0 {
		err = errors.New("it is not installed")
	}
	if err != nil {
		return "", fmt.Errorf("package %s: %w", testsPackage, err)
	}
	return string(out), nil
}

// namesOf are the tests that pass of a release.
func namesOf(version string) (names []string, err error) {
	file, err := passing.ReadFile("testdata/rdma-core-" + version + ".txt")
	if err != nil {
		return nil, fmt.Errorf("which tests pass of rdma-core %s is not known: %w", version, err)
	}
	for line := range strings.Lines(string(file)) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "#") {
			names = append(names, line)
		}
	}
	return names, nil
}

// fetchTests puts the tests into a folder: from where they are installed, or from the package.
func fetchTests(t *testing.T, to string) error {
	if _, err := os.Stat("/" + testsFolder); err == nil {
		return unpack("/"+testsFolder, to)
	}
	version, err := installedVersion("Version")
	if err != nil {
		return err
	}
	folder := t.TempDir()
	get := exec.Command("sh", "-c", `apt-get download "$1" && dpkg-deb -x ./*.deb .`, "sh", testsPackage+"="+version)
	get.Dir = folder
	if out, err := get.CombinedOutput(); err != nil {
		return fmt.Errorf("package %s, which has the tests: %w: %s", testsPackage, err, out)
	}
	return unpack(filepath.Join(folder, testsFolder), to)
}

// unpack copies files, those decompressed that the package has compressed.
func unpack(from, to string) error {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return err
	}
	compressed, err := fs.Glob(os.DirFS(to), "*.gz")
	if err != nil {
		return err
	}
	for _, name := range compressed {
		if err := decompress(filepath.Join(to, name)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func decompress(path string) error {
	packed, err := os.Open(path)
	if err != nil {
		return err
	}
	defer packed.Close()
	r, err := gzip.NewReader(packed)
	if err != nil {
		return err
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	return os.WriteFile(strings.TrimSuffix(path, ".gz"), data, 0o644)
}

// results tell how tests ended, by "module.test", and how many there were.
type results struct {
	passed, skipped, failed []string
	ran                     int
}

var (
	// A test's name, which is followed by what the test prints or is described by, and then
	// by how it ended.
	namePattern  = regexp.MustCompile(`^(test_\w+) \(tests\.(\w+)\.`)
	endPattern   = regexp.MustCompile(`(?:\.\.\. |^)(ok|skipped|FAIL|ERROR)\b`)
	countPattern = regexp.MustCompile(`^Ran (\d+) tests? in `)
)

// resultsIn finds the results in what Python's unittest prints.
func resultsIn(output string) (r results) {
	name := ""
	lines := bufio.NewScanner(strings.NewReader(output))
	for lines.Scan() {
		line := lines.Text()
		if match := namePattern.FindStringSubmatch(line); match != nil {
			name = match[2] + "." + match[1]
		}
		if match := countPattern.FindStringSubmatch(line); match != nil {
			_, _ = fmt.Sscan(match[1], &r.ran)
		}
		end := endPattern.FindStringSubmatch(line)
		if end == nil || name == "" {
			continue
		}
		switch end[1] {
		case "ok":
			r.passed = append(r.passed, name)
		case "skipped":
			r.skipped = append(r.skipped, name)
		default:
			r.failed = append(r.failed, name)
		}
		name = ""
	}
	return r
}

// TestResults: results are found whatever a test prints meanwhile.
func TestResults(t *testing.T) {
	r := resultsIn(`test_a (tests.test_x.Case.test_a) ... ok
test_b (tests.test_x.Case.test_b)
What it is about. ... skipped 'no ok reason'
test_c (tests.test_y.Case.test_c) ... printed
ok
test_d (tests.test_y.Case.test_d) ... Player got: nothing
ERROR
test_e (tests.test_y.Case.test_e)
... FAIL
======================================================================
ERROR: test_d (tests.test_y.Case.test_d)
Ran 5 tests in 1.234s
`)
	want := results{
		passed: []string{"test_x.test_a", "test_y.test_c"}, skipped: []string{"test_x.test_b"},
		failed: []string{"test_y.test_d", "test_y.test_e"}, ran: 5,
	}
	if !reflect.DeepEqual(r, want) {
		t.Errorf("%+v, want %+v", r, want)
	}
}
