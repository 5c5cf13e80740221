package page

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"math"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/live"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/node/adapter"
	"github.com/ndklab/ndklab/internal/topology/generate"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/topology"
)

// policy is the one that package ui serves the page with.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; " +
	"frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

// A fixture serves the page and a lab that never was, whose samples a test makes: the same in each run.
type fixture struct {
	t      testing.TB
	url    string
	maps   []*live.Map // of the runs
	detail map[string]any

	mu       sync.Mutex
	messages [][]message // of each run's stream, all that were ever sent
	more     chan struct{}
	moved    *sync.Cond // of mu: changes or streams
	changes  []live.Change
	streams  int // that are open
	seconds  int
	cut      map[string]bool // endpoints, by the page: no packet passes any more
	broken   string          // an endpoint that is cut without harm to the rest
	state    map[string]string
}

type message struct {
	kind string
	data []byte
}

func newFixture(t testing.TB, maps ...*live.Map) *fixture {
	f := &fixture{t: t, maps: maps, detail: map[string]any{}, messages: make([][]message, len(maps)), more: make(chan struct{}), cut: map[string]bool{}, state: map[string]string{}}
	f.moved = sync.NewCond(&f.mu)
	server := httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	f.url = server.URL + "/secret/"
	for run, m := range maps {
		f.send(run, "map", m)
	}
	return f
}

func (f *fixture) send(run int, kind string, v any) {
	f.t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		f.t.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.messages[run] = append(f.messages[run], message{kind, data})
	close(f.more)
	f.more = make(chan struct{})
}

func (f *fixture) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Security-Policy", policy)
	below, ok := strings.CutPrefix(r.URL.EscapedPath(), "/secret/")
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	switch call, rest, _ := strings.Cut(strings.TrimPrefix(below, "api/"), "/"); {
	case below == "":
		f.file(w, "index.html")
	case strings.HasPrefix(below, "assets/"):
		f.file(w, below)
	case call == "stream":
		f.stream(w, r)
	case call == "change":
		f.change(w, r)
	case call == "undo":
		f.answer(w, map[string]any{"command": "ndklab link up fixture/a:eth0", "undo": []live.Change{}, "text": ""})
	case f.detail[call] != nil:
		f.answer(w, f.detail[call])
	default:
		f.t.Errorf("the page asks for %q (%q)", below, rest)
		w.WriteHeader(http.StatusNotFound)
	}
}

func (f *fixture) file(w http.ResponseWriter, name string) {
	data, err := fs.ReadFile(Files(), name)
	if err != nil {
		f.t.Error(err)
	}
	kinds := map[string]string{".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}
	w.Header().Set("Content-Type", kinds[path.Ext(name)])
	if _, err := w.Write(data); err != nil {
		return // the browser has gone
	}
}

func (f *fixture) answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(v); err != nil {
		return // the browser has gone
	}
}

func (f *fixture) stream(w http.ResponseWriter, r *http.Request) {
	run := 0
	if r.URL.Query().Get("run") == "1" {
		run = 1
	}
	w.Header().Set("Content-Type", "text/event-stream")
	f.mu.Lock()
	f.streams++
	f.moved.Broadcast()
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.streams--
		f.moved.Broadcast()
		f.mu.Unlock()
	}()
	for sent := 0; ; {
		f.mu.Lock()
		due, more := f.messages[run][sent:], f.more
		f.mu.Unlock()
		for _, m := range due {
			if _, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", m.kind, m.data); err != nil {
				return
			}
		}
		sent += len(due)
		w.(http.Flusher).Flush()
		select {
		case <-more:
		case <-r.Context().Done():
			return
		}
	}
}

// change does what is asked to the lab of the fixture: its next samples are other ones.
func (f *fixture) change(w http.ResponseWriter, r *http.Request) {
	var c live.Change
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		f.answer(w, map[string]string{"error": err.Error()})
		return
	}
	undo := []live.Change{}
	f.mu.Lock()
	if r.URL.Query().Get("dry") == "" {
		f.changes = append(f.changes, c)
		f.moved.Broadcast()
		switch c.Act {
		case "cut", "heal":
			f.cut[c.Endpoint] = c.Act == "cut"
			undo = append(undo, live.Change{Act: "heal", Endpoint: c.Endpoint})
		case "pause", "resume":
			f.state[c.Node] = map[string]string{"pause": "paused", "resume": "ready"}[c.Act]
			undo = append(undo, live.Change{Act: "resume", Node: c.Node})
		}
	}
	f.mu.Unlock()
	f.answer(w, map[string]any{"command": c.Command("fixture"), "undo": undo, "text": ""})
}

// until waits until something holds of the fixture.
func (f *fixture) until(holds func() bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for !holds() {
		f.moved.Wait()
	}
}

// sample has a second pass in each run, and tells it.
func (f *fixture) sample() {
	f.mu.Lock()
	f.seconds++
	n := f.seconds
	f.mu.Unlock()
	for run, m := range f.maps {
		f.send(run, "sample", f.at(m, n, run))
	}
}

// at returns what the lab does in a second: loads that differ from link to link and wander, and links that are cut.
func (f *fixture) at(m *live.Map, second, run int) *live.Sample {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := &live.Sample{At: float64(second), Over: 1, State: "ready"}
	wave := func(i, period int) float64 { // 0 to 1
		return 0.5 + 0.35*math.Sin(2*math.Pi*(float64(second+3*run)/float64(period)+0.618*float64(i))) + 0.15*math.Sin(float64(second*(7+i%5)+run))
	}
	good, bad := 1.0, 1.0 // a time of trouble
	if second >= 60 && second < 80 {
		good, bad = 0.55, 4
	}
	alive := 1.0
	for _, cut := range f.cut {
		if cut {
			alive = 0
		}
	}
	for i, n := range m.Nodes {
		if n.Kind == "external" {
			continue
		}
		state := f.state[n.Name]
		if state == "" {
			state = "ready"
		}
		ns := live.NodeSample{State: state}
		if n.Kind == "host" {
			ns.Out, ns.In = good*alive*(5e9+2e9*wave(i, 23)), good*alive*(5e9+2e9*wave(i, 29))
			ns.Packets, ns.QPs, ns.Conns = alive*4e5, 8, 4
			ns.Resent, ns.CNPs, ns.Paused = alive*40*bad*bad*wave(i, 11), alive*900*wave(i, 13), 0.2*wave(i, 7)
			ns.Pairs = []live.PairSample{{QP: 17, Peer: "server", Rate: 4e9 + float64(second<<20), Target: 5e9, Window: 65536, CNPs: ns.CNPs, Resent: float64(10 * second)}, {QP: 18, Peer: "server", Rate: 1e9}}
		}
		s.Nodes = append(s.Nodes, ns)
	}
	for i, l := range m.Links {
		ls := live.LinkSample{Up: true}
		for end := range ls.Ends {
			d := &ls.Ends[end]
			load := 0.1 + 0.75*wave(2*i+end, 41)*wave(i, 57)
			if (i*7+end)%31 == 5 {
				load = 0.88 + 0.11*wave(i, 15)
			}
			queue, delay := 3e5*load*load, 20+80*load
			d.Cut = f.cut[l.Endpoints[0]] || f.cut[l.Endpoints[1]] || l.Endpoints[0] == f.broken || l.Endpoints[1] == f.broken
			if d.Cut {
				load, queue = 0, 0
			}
			d.Rate, d.Packets = 1e10*load, 3e5*load
			if load > 0.95 {
				d.Dropped, d.Marked = 0.002*d.Packets, 0.05*d.Packets
			}
			d.Load, d.Queue, d.Delay = &load, &queue, &delay
			d.Set = []string{"delay=10us", "rate=10gbit"}
			if second >= 3 && end == 1 {
				d.Pauses = []live.PauseSample{{Class: 3, Share: 0.25}, {Class: 4, Share: 0.125}}
			}
		}
		s.Links = append(s.Links, ls)
	}
	for i, flow := range m.Flows {
		p50 := 30 + 10*wave(i, 19)
		p99 := p50 * bad * (2 + wave(i, 7))
		s.Workloads = append(s.Workloads, live.WorkloadSample{Name: flow.Workload, Node: flow.From, Rate: good * alive * (3e9 + 2e9*wave(i, 23)), Messages: 4e4, P50: &p50, P99: &p99})
	}
	return s
}

// event tells the page of an event.
func (f *fixture) event(second float64, kind, text string, of event.Event) {
	of.Lab, of.At, of.Kind, of.Text, of.Time = "fixture", time.Duration(second*1e9), kind, text, time.Unix(1, 0).UTC()
	f.send(0, "event", of)
}

// details gives the fixture what panels ask for.
func (f *fixture) details() {
	asked, measured, peak := 10.0, 11.2, uint64(183000)
	loss, rate := 0.001, 10.0
	direction := func(from string) report.Direction {
		d := report.Direction{From: from, Packets: 1204211, Bytes: 4 << 30, Dropped: 1190, Lost: 12, LostBy: report.LostBy{Queue: 12}, Marked: 3301, QueuePeak: &peak,
			Asked: report.Quality{DelayUS: &asked, Loss: &loss, RateGbps: &rate}, Achieved: report.Quality{DelayUS: &measured, Loss: &loss, RateGbps: &rate}}
		for i := range 16 {
			d.Delays = append(d.Delays, report.Delays{FromUS: 10 + float64(i), Packets: uint64(9000 / (1 + (i-4)*(i-4)))})
		}
		return d
	}
	l := f.maps[0].Links[0]
	f.detail["link"] = report.Link{Endpoints: l.Endpoints, Engine: "linkem", State: "up", Directions: [2]report.Direction{direction(l.Endpoints[0]), direction(l.Endpoints[1])}}
	node := report.Node{NodeState: report.NodeState{Name: f.maps[0].Nodes[0].Name, State: "ready"}, Kind: "host", Addresses: []string{"10.0.0.1/24"},
		Counters: map[string]uint64{"ActiveConnections": 4, "Connects": 9, "RdmaInOctets": 1 << 33, "RdmaOutOctets": 1 << 34}, Transport: map[string]uint64{"packets_sent_again": 120, "naks_received": 3}}
	info := provider.DefaultAdapterInfo()
	f.detail["node"] = map[string]any{"node": node, "adapter": adapter.State{Enabled: true, Info: info, Addresses: []adapter.Address{}},
		"connections": []adapter.Connection{{Mode: "Kernel", Type: adapter.ActiveConnection, Local: "10.0.0.1:4791", Remote: "10.0.0.2:5201", State: "Connected", QPN: 17, RemoteQPN: 23}},
		"log":         []string{"10:00:01 agent ready", "10:00:02 listens on 10.0.0.1:5201"}}
	var rows, points []map[string]any
	acked := 0
	for i := range 120 {
		at := 41 + float64(i)*0.0004
		rows = append(rows, map[string]any{"at": at, "from": l.Endpoints[i%2], "size": 4170, "fate": "delivered", "delay": 10.4, "opcode": "RC RDMA WRITE Middle", "psn": 100 + i, "qp": 23, "text": "RDMA WRITE Middle, 4096 bytes"})
		p := map[string]any{"at": at, "kind": "data", "psn": 100 + i, "size": 4096, "opcode": "RC RDMA WRITE Middle", "text": "4096 bytes"}
		if i == 40 {
			p["lost"] = "loss"
			rows[i]["fate"], rows[i]["cause"] = "dropped", "loss"
		}
		points = append(points, p)
		if i%4 == 3 && (i < 40 || i > 60) {
			acked = 100 + i
			points = append(points, map[string]any{"at": at + 0.0002, "kind": "ack", "psn": 99 + i, "acked": acked, "text": "ACK"})
		}
		if i == 44 {
			points = append(points, map[string]any{"at": at + 0.0002, "kind": "nak", "psn": 140, "acked": 140, "text": "NAK, PSN sequence error"})
		}
		if i == 52 {
			for k := range 10 {
				points = append(points, map[string]any{"at": at + float64(k)*0.00003, "kind": "resent", "psn": 140 + k, "size": 4096, "text": "4096 bytes, again"})
			}
		}
	}
	f.detail["packets"] = map[string]any{"rows": rows}
	f.detail["sequence"] = map[string]any{"from": map[string]any{"address": "10.0.0.1", "qpn": 17}, "to": map[string]any{"address": "10.0.0.2", "qpn": 23}, "points": points}
}

// pair is two hosts and a link.
const pair = `
name: pair
seed: 42
topology:
  nodes: {client: , server: }
  links: [{endpoints: ["client:eth0", "server:eth0"], rate: 10gbit}]
workloads: [{name: bulk, operation: write, from: client, to: server, size: 64KiB, duration: 1s}]
`

func mapOf(t testing.TB, text string) *live.Map {
	t.Helper()
	topo, err := topology.Parse("x.ndklab.yaml", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return live.MapOf(topo)
}

// leafSpine is the map of a generated fabric.
func leafSpine(t testing.TB, spines, leaves, hosts int) *live.Map {
	t.Helper()
	shapes := generate.Shapes()
	s := shapes[slices.IndexFunc(shapes, func(s generate.Shape) bool { return s.Name == "leaf-spine" })]
	order := generate.Order{Name: "fabric", Values: map[string]int{}, Link: s.Link}
	for _, p := range s.Parameters {
		order.Values[p.Name] = p.Default
	}
	for key, v := range map[string]int{"spines": spines, "leaves": leaves, "hosts-per-leaf": hosts} {
		if _, ok := order.Values[key]; !ok {
			t.Fatalf("leaf-spine has no parameter %s: %v", key, order.Values)
		}
		order.Values[key] = v
	}
	text, err := s.Generate(order)
	if err != nil {
		t.Fatal(err)
	}
	m := mapOf(t, text)
	return m
}

// hostile is a map whose every text would do something if it were markup.
func hostile(text string) *live.Map {
	m := &live.Map{Lab: text, Width: 200, Height: 100}
	for i := range 3 {
		m.Nodes = append(m.Nodes, live.Node{Name: fmt.Sprint(text, i), Kind: []string{"host", "switch", "external"}[i], Group: text, X: 100 * float64(i), Y: 50})
	}
	for i := range 2 {
		m.Links = append(m.Links, live.Link{Endpoints: [2]string{fmt.Sprint(text, i, ":eth0"), fmt.Sprint(text, i+1, ":eth1")}, Nodes: [2]int{i, i + 1}})
	}
	m.Flows = []live.Flow{{Workload: text, From: 0, To: 1, Hops: []live.Hop{{Link: 0}}}}
	return m
}
