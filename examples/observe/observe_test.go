// Package observe_test has a real Prometheus scrape a lab, and asks it what the dashboard and the alerts ask.
package observe_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/built"
	"github.com/ndklab/ndklab/internal/fabric/doctor"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/need"
	"github.com/ndklab/ndklab/internal/node/cgroup"
	"gopkg.in/yaml.v3"
)

// bin is the folder with ndklab and ndklab-monitor.
var bin string

func TestMain(m *testing.M) {
	doctor.Child()
	os.Exit(built.Main(m, &bin, "../../cmd/..."))
}

// patience bounds whatever the test waits for.
const patience = time.Minute

// observed is a lab in which all that the dashboard shows happens.
const observed = `name: %s
seed: 1
topology:
  defaults:
    link: {delay: 1ms, rate: 200mbit, loss: 0.1%%, overrun: allow}
  nodes:
    a: {memory: 256MiB, pids: 200}
    b: {}
    s: {kind: switch}
  links:
    - {endpoints: ["a:eth0", "s:pa"]}
    - {endpoints: ["b:eth0", "s:pb"]}
workloads:
  - {name: bulk, from: a, to: b, operation: write, size: 16KiB, depth: 4, duration: 10m}
`

// limited are queries of what is known of nodes with limits alone.
var limited = regexp.MustCompile(`^ndklab_node_(memory|processes)`)

// The rules and the configuration are right in the eyes of Prometheus' own tool, alerts fire when they should, and what
// is exposed is well-formed.
func TestRules(t *testing.T) {
	need.Check(t, need.Programs("promtool"))
	for _, args := range [][]string{{"check", "config", "prometheus.yml"}, {"check", "rules", "alerts.yml"}, {"test", "rules", "alerts_test.yml"}} {
		if out, err := exec.Command("promtool", args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
	tests, err := os.ReadFile("alerts_test.yml")
	if err != nil {
		t.Fatal(err)
	}
	for name := range alerts(t) {
		if !regexp.MustCompile(`alertname: ` + name + `\n +exp_alerts: \[\{`).Match(tests) {
			t.Errorf("no test has %s fire", name)
		}
	}
}

// Prometheus scrapes a lab in which a workload runs. It answers all queries of the dashboard, with data, and those of the
// alerts; it has the values that `ndklab counters` has; it sees a link go down, and the lab end.
func TestPrometheus(t *testing.T) {
	need.Check(t, need.Programs("prometheus", "promtool"))
	need.Labs(t, doctor.Examine(t.Context()).CanRun)
	lab := "observe-" + strconv.Itoa(os.Getpid())
	file := filepath.Join(t.TempDir(), "observe.ndklab.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, observed, lab), 0o644); err != nil {
		t.Fatal(err)
	}
	ndklab(t, "up", file)
	t.Cleanup(func() { _ = exec.Command(filepath.Join(bin, "ndklab"), "down", lab).Run() }) // it may be down
	run := start(t, filepath.Join(bin, "ndklab"), "run", lab)
	metrics := start(t, filepath.Join(bin, "ndklab"), "metrics", lab, "--listen", "127.0.0.1:0")
	target := strings.TrimSuffix(strings.TrimPrefix(metrics.line(t, metrics.stdout), "http://"), "/metrics")
	p := startPrometheus(t, target)

	queries := dashboard(t, lab)
	if len(queries) < 20 {
		t.Fatalf("the dashboard has %d queries", len(queries))
	}
	limits := cgroup.Open().Prepare(cgroup.Limits{Memory: 1, PIDs: 1}) == nil
	for _, q := range queries {
		if !limits && limited.MatchString(q) {
			p.ask(t, q) // without an error
			continue
		}
		p.until(t, q, func(r []result) bool { return len(r) > 0 && !r[0].isNaN() })
	}
	expressions := alerts(t)
	for name, e := range expressions {
		if r := p.ask(t, e); name == "NdklabLabGone" && len(r) > 0 || name == "NdklabLinkDown" && len(r) > 0 {
			t.Errorf("%s: %v", name, r)
		}
	}
	p.checkExposed(t, target)

	// Links have the delay that they are asked for, or more on a busy machine.
	p.until(t, fmt.Sprintf(`ndklab_link_delay_seconds_sum{lab=%q} / ndklab_link_delay_seconds_count > 0.001 < 0.1`, lab), func(r []result) bool { return len(r) == 4 })

	// When the workload is over nothing counts any more, and Prometheus has what the command line has.
	run.signal(t, syscall.SIGINT)
	run.end(t)
	p.compare(t, lab)

	ndklab(t, "link", "down", lab+"/a:eth0")
	p.until(t, expressions["NdklabLinkDown"], func(r []result) bool { return len(r) == 2 })
	ndklab(t, "kill", lab+"/b")
	p.until(t, expressions["NdklabNodeNotReady"], func(r []result) bool { return len(r) == 1 && r[0].Metric["node"] == "b" })

	ndklab(t, "down", lab)
	if code, said := metrics.end(t), metrics.stderr.String(); code != 2 || said != "ndklab: lab "+lab+" was taken down\n" {
		t.Errorf("ndklab metrics ended with %d: %q", code, said)
	}
	p.until(t, expressions["NdklabLabGone"], func(r []result) bool { return len(r) == 1 })
}

// compare waits until Prometheus has scraped the counters that ndklab counters prints.
func (p *prometheus) compare(t *testing.T, lab string) {
	t.Helper()
	var counted struct{ Nodes []report.Node }
	if err := json.Unmarshal(ndklab(t, "counters", lab, "-o", "json"), &counted); err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, n := range counted.Nodes {
		want := map[string]uint64{
			"node_infiniband_port_data_received_bytes_total":         n.Counters["RDMAInOctets"],
			"node_infiniband_port_data_transmitted_bytes_total":      n.Counters["RDMAOutOctets"],
			"node_infiniband_port_packets_received_total":            n.Counters["RDMAInFrames"],
			"node_infiniband_port_packets_transmitted_total":         n.Counters["RDMAOutFrames"],
			"ndklab_adapter_connects_total":                          n.Counters["Connect"],
			"ndklab_adapter_accepts_total":                           n.Counters["Accept"],
			"ndklab_adapter_connection_errors_total":                 n.Counters["ConnectionError"],
			"ndklab_adapter_active_connections":                      n.Counters["ActiveConnection"],
			"ndklab_transport_packets_sent_total":                    n.Transport["packets_sent"],
			"ndklab_transport_packets_received_total":                n.Transport["packets_received"],
			"ndklab_transport_retransmitted_packets_total":           n.Transport["retransmitted"],
			"ndklab_transport_acks_sent_total":                       n.Transport["acks_sent"],
			"node_infiniband_out_of_sequence_packets_received_total": n.Transport["out_of_sequence"],
			"node_infiniband_packet_sequence_errors_total":           n.Transport["naks_received"],
			"node_infiniband_local_ack_timeout_errors_total":         n.Transport["timeouts"],
			"node_infiniband_duplicate_requests_packets_total":       n.Transport["duplicates"],
		}
		for name, value := range want {
			p.until(t, fmt.Sprintf("%s{lab=%q, node=%q} == %d", name, lab, n.Name, value), func(r []result) bool { return len(r) == 1 })
			compared++
		}
	}
	if compared != 32 {
		t.Errorf("%d values are compared", compared)
	}
}

// checkExposed has promtool look at what a scrape gets.
func (p *prometheus) checkExposed(t *testing.T, target string) {
	t.Helper()
	body := get(t, "http://"+target+"/metrics", nil)
	check := exec.Command("promtool", "check", "metrics")
	check.Stdin = bytes.NewReader(body)
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// dashboard returns the queries of the dashboard for a lab, as Grafana would fill them in.
func dashboard(t *testing.T, lab string) (queries []string) {
	t.Helper()
	text, err := os.ReadFile("dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	fill := strings.NewReplacer("$lab", lab, "$node", "(a|b|s)", "$__rate_interval", "10s")
	for _, panel := range d.Panels {
		for _, target := range panel.Targets {
			q := fill.Replace(target.Expr)
			if strings.Contains(q, "$") {
				t.Errorf("%s: a variable that the test does not know", q)
			}
			queries = append(queries, q)
		}
	}
	return queries
}

// alerts returns the expressions of the alerts.
func alerts(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			all[r.Alert] = r.Expr
		}
	}
	if len(all) < 10 {
		t.Fatalf("there are %d alerts", len(all))
	}
	return all
}

// A process is one that runs until the test ends at the latest.
type process struct {
	*exec.Cmd
	stdout *bufio.Reader
	stderr bytes.Buffer // complete when it has ended
}

func start(t *testing.T, path string, args ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.CommandContext(t.Context(), path, args...)}
	p.Cmd.Stderr = &p.stderr
	stdout, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.stdout = bufio.NewReader(stdout)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// line returns the next line of what the process prints.
func (p *process) line(t *testing.T, from *bufio.Reader) string {
	t.Helper()
	line, err := from.ReadString('\n')
	if err != nil {
		t.Fatalf("%v: %v, %v\n%s", p.Args, err, p.Wait(), &p.stderr)
	}
	return strings.TrimSuffix(line, "\n")
}

func (p *process) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := p.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// end waits for the end of the process and returns its exit code.
func (p *process) end(t *testing.T) int {
	t.Helper()
	if _, err := io.Copy(io.Discard, p.stdout); err != nil {
		t.Error(err)
	}
	_ = p.Wait() // the exit code tells
	return p.ProcessState.ExitCode()
}

// ndklab runs a command to its end, which must be well, and returns what it prints.
func ndklab(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(filepath.Join(bin, "ndklab"), args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("ndklab %v: %v\n%s", args, err, &stderr)
	}
	return out
}

// A prometheus is a Prometheus that runs.
type prometheus struct{ at string }

// startPrometheus has a Prometheus scrape a target as the configuration says, but more often.
func startPrometheus(t *testing.T, target string) *prometheus {
	t.Helper()
	text, err := os.ReadFile("prometheus.yml")
	if err != nil {
		t.Fatal(err)
	}
	rules, err := filepath.Abs("alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	config := string(text)
	for was, is := range map[string]string{
		"scrape_interval: 2s": "scrape_interval: 250ms", "evaluation_interval: 2s": "evaluation_interval: 250ms",
		"[alerts.yml]": "[" + rules + "]", `"127.0.0.1:9464"`: strconv.Quote(target),
	} {
		if strings.Count(config, was) != 1 {
			t.Fatalf("prometheus.yml has not one %s", was)
		}
		config = strings.Replace(config, was, is, 1)
	}
	folder := t.TempDir()
	file := filepath.Join(folder, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("prometheus", "--config.file="+file, "--storage.tsdb.path="+filepath.Join(folder, "data"), "--web.listen-address=127.0.0.1:0")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it keeps nothing that is needed
		_ = cmd.Wait()
	})
	log := bufio.NewScanner(stderr)
	var said strings.Builder
	listening := regexp.MustCompile(`msg="Listening on" address=(127\.0\.0\.1:[1-9][0-9]*)`)
	for log.Scan() {
		said.WriteString(log.Text() + "\n")
		if found := listening.FindStringSubmatch(log.Text()); found != nil {
			go func() {
				for log.Scan() { // so that it can go on writing
				}
			}()
			p := &prometheus{"http://" + found[1]}
			p.awaitReady(t)
			return p
		}
	}
	t.Fatalf("prometheus does not listen:\n%s", &said)
	return nil
}

// awaitReady waits until queries are answered.
func (p *prometheus) awaitReady(t *testing.T) {
	t.Helper()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for deadline := time.Now().Add(patience); ; <-again.C {
		answer := get(t, p.at+"/-/ready", nil)
		if strings.Contains(string(answer), "is Ready") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("prometheus is not ready: %s", answer)
		}
	}
}

// A result is a value of an answer.
type result struct {
	Metric map[string]string
	Value  [2]any // an instant, and the value as text
}

func (r *result) isNaN() bool { return r.Value[1] == "NaN" }

// ask returns the answer to a query, which must be no error.
func (p *prometheus) ask(t *testing.T, query string) []result {
	t.Helper()
	var answer struct {
		Status, Error string
		Data          struct {
			ResultType string
			Result     []result
		}
	}
	if err := json.Unmarshal(get(t, p.at+"/api/v1/query", url.Values{"query": {query}}), &answer); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	if answer.Status != "success" || answer.Data.ResultType != "vector" {
		t.Fatalf("%s: %+v", query, answer)
	}
	return answer.Data.Result
}

// until asks a query until the answer is what is waited for.
func (p *prometheus) until(t *testing.T, query string, ok func([]result) bool) {
	t.Helper()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for deadline := time.Now().Add(patience); ; <-again.C {
		r := p.ask(t, query)
		if ok(r) {
			return
		}
		if time.Now().After(deadline) {
			name, _, _ := strings.Cut(query, "{")
			t.Fatalf("%s: %v\n%s: %v", query, r, name, p.ask(t, name))
		}
	}
}

// get returns what an HTTP server answers.
func get(t *testing.T, at string, values url.Values) []byte {
	t.Helper()
	if len(values) > 0 {
		at += "?" + values.Encode()
	}
	resp, err := http.Get(at)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return body
}
