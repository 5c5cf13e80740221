package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/built"
	"github.com/ndklab/ndklab/internal/fabric/doctor"
	"github.com/ndklab/ndklab/internal/need"
	"github.com/ndklab/ndklab/internal/nobody"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// bin is the folder with both programs.
var bin string

func TestMain(m *testing.M) {
	doctor.Child()
	os.Exit(built.Main(m, &bin, "../..."))
}

// up brings a lab up for the time of the test, and returns its name.
func up(t testing.TB, nodes int) string {
	t.Helper()
	lab := nameOf(nodes)
	return upFile(t, lab, fileOf(t, lab, nodes))
}

// upFile is up for the lab of a file.
func upFile(t testing.TB, lab, file string) string {
	t.Helper()
	bringFile(t, file)
	t.Cleanup(func() {
		if out, err := exec.Command(filepath.Join(bin, "ndklab"), "down", lab).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
	return lab
}

// bring brings a lab up, which whoever calls it takes down, and returns its name.
func bring(t testing.TB, nodes int) string {
	t.Helper()
	lab := nameOf(nodes)
	bringFile(t, fileOf(t, lab, nodes))
	return lab
}

func bringFile(t testing.TB, file string) {
	t.Helper()
	need.Labs(t, doctor.Examine(t.Context()).CanRun)
	if out, err := exec.Command(filepath.Join(bin, "ndklab"), "up", file).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func nameOf(nodes int) string { return fmt.Sprintf("met-%d-%d", os.Getpid(), nodes) }

// fileOf returns the file of a lab.
func fileOf(t testing.TB, lab string, nodes int) string {
	t.Helper()
	text := fmt.Sprintf("name: %s\nseed: 1\ntopology:\n  defaults: {link: {delay: 50us, rate: 1gbit, overrun: allow}}\n  nodes:\n    s: {kind: switch}\n", lab)
	links := "  links:\n"
	for i := range nodes {
		text += fmt.Sprintf("    h%d:\n", i)
		links += fmt.Sprintf("    - endpoints: [\"h%d:eth0\", \"s:p%d\"]\n", i, i)
	}
	file := filepath.Join(t.TempDir(), "lab.ndklab.yaml")
	if err := os.WriteFile(file, []byte(text+links), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// A command is ndklab's that goes on.
type command struct {
	*exec.Cmd
	stdout *bufio.Reader
	stderr bytes.Buffer
}

func start(t testing.TB, args ...string) *command {
	t.Helper()
	return startAs(t, func(*exec.Cmd) {}, args...)
}

// startAs is start of a command that as changes before.
func startAs(t testing.TB, as func(*exec.Cmd), args ...string) *command {
	t.Helper()
	c := &command{Cmd: exec.CommandContext(t.Context(), filepath.Join(bin, "ndklab"), args...)}
	c.Stderr = &c.stderr
	stdout, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.stdout = bufio.NewReader(stdout)
	as(c.Cmd)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return c
}

// url returns where the command serves, as it says.
func (c *command) url(t testing.TB) string {
	t.Helper()
	line, err := c.stdout.ReadString('\n')
	if err != nil {
		t.Fatalf("%v: %v\n%s", err, c.Wait(), &c.stderr)
	}
	return strings.TrimSuffix(line, "\n")
}

// ends wants the end of the command with an exit code, and what it says to standard error.
func (c *command) ends(t testing.TB, code int, said string) {
	t.Helper()
	var rest bytes.Buffer
	if _, err := c.stdout.WriteTo(&rest); err != nil {
		t.Error(err)
	}
	_ = c.Wait() // the exit code tells
	if got := c.ProcessState.ExitCode(); got != code || !strings.Contains(c.stderr.String(), said) || (said == "") != (c.stderr.Len() == 0) {
		t.Errorf("%v ended with %d: %q, want %d and %q", c.Args, got, &c.stderr, code, said)
	}
}

// The command serves until Ctrl-C, which is how it is meant to end; and says why it does not.
func TestCommand(t *testing.T) {
	lab := up(t, 2)
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		c := start(t, "metrics", lab, "--listen", "127.0.0.1:0")
		url := c.url(t)
		resp, err := http.Get(url)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%v, %+v", err, resp)
		}
		parser := expfmt.NewTextParser(model.LegacyValidation)
		families, err := parser.TextToMetricFamilies(resp.Body)
		resp.Body.Close()
		if err != nil || len(families["ndklab_node_state"].GetMetric()) != 3*5 || len(families["ndklab_link_up"].GetMetric()) != 2*2 {
			t.Errorf("%v: %v", err, families)
		}
		wantConfined(t, c)
		address := strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/metrics")
		start(t, "metrics", lab, "--listen", address).ends(t, 3, "ndklab: --listen "+address+": listen tcp "+address+": bind: address already in use; expected an address of this machine and a port that is free")
		if err := c.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		c.ends(t, 0, "")
		if _, err := http.Get(url); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("after the end: %v", err)
		}
	}
	out, err := exec.Command(filepath.Join(bin, "ndklab"), "metrics", lab, "--once").Output()
	if err != nil || !strings.Contains(string(out), fmt.Sprintf("\nndklab_lab_ready{lab=%q} 1\n", lab)) {
		t.Errorf("%v\n%s", err, out)
	}
	start(t, "metrics", "nosuchlab").ends(t, 2, "ndklab: lab nosuchlab is not up (")

	if os.Geteuid() == 0 { // nobody sees root's labs
		c := exec.Command(filepath.Join(bin, "ndklab"), "metrics", lab, "--once")
		nobody.Become(c, nobody.Home(t))
		out, err := c.CombinedOutput()
		if c.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), "lab "+lab+" is not up") {
			t.Errorf("%v\n%s", err, out)
		}
	}
}

// manyNodes is the number of nodes of a large lab.
const manyNodes = 500

// scrapeAll scrapes a large lab, and returns how long that took.
func scrapeAll(t testing.TB, url string) time.Duration {
	t.Helper()
	began := time.Now()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var body bytes.Buffer
	if _, err := body.ReadFrom(resp.Body); err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	if n := strings.Count(body.String(), "\nnode_infiniband_port_packets_received_total{"); n != manyNodes {
		t.Fatalf("%d adapters", n)
	}
	return took
}

// A scrape of a large lab has all of its nodes.
func TestManyNodes(t *testing.T) {
	need.Time(t)
	lab := up(t, manyNodes)
	c := start(t, "metrics", lab, "--listen", "127.0.0.1:0")
	scrapeAll(t, c.url(t))
	if err := c.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	c.ends(t, 0, "")
}

// BenchmarkManyNodes measures a scrape of a large lab, also the quickest of many, since the machine may have other things to do.
func BenchmarkManyNodes(b *testing.B) {
	lab := up(b, manyNodes)
	c := start(b, "metrics", lab, "--listen", "127.0.0.1:0")
	url := c.url(b)
	least := time.Hour
	for b.Loop() {
		least = min(least, scrapeAll(b, url))
	}
	b.ReportMetric(least.Seconds()*1e3, "least-ms/op")
	if err := c.Process.Signal(syscall.SIGINT); err != nil {
		b.Fatal(err)
	}
	c.ends(b, 0, "")
}
