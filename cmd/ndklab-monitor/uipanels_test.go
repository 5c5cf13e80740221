package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/ndklab/ndklab/internal/fabric/live"
)

// The page shows nodes and links, and says what is missing as the command line does.
func TestPanels(t *testing.T) {
	lab := up(t, 2)
	_, p := openPage(t, lab)
	var node struct {
		Node        struct{ Name, State, Kind string }
		Adapter     *struct{ Name string }
		Connections []any
		Log         []string
		Error       string
	}
	for name, kind := range map[string]string{"h0": "host", "s": "switch"} {
		if status := p.ask(t, "GET", "api/node/"+name, nil, &node); status != http.StatusOK || node.Node.Name != name || node.Node.State != "ready" || node.Node.Kind != kind || node.Connections == nil || (node.Adapter != nil) != (kind == "host") {
			t.Errorf("%s: %d %+v", name, status, node)
		}
	}
	var link struct {
		Endpoints []string
		State     string
		Error     string
	}
	if status := p.ask(t, "GET", "api/link/"+url.PathEscape("s:p0"), nil, &link); status != http.StatusOK || !cmp.Equal(link.Endpoints, []string{"h0:eth0", "s:p0"}) || link.State != "up" {
		t.Errorf("%d %+v", status, link)
	}
	for path, want := range map[string]string{
		"api/node/h9":                  "lab " + lab + ` has no node "h9"`,
		"api/link/h9:eth0":             "lab " + lab + ` has no link with the endpoint "h9:eth0"`,
		"api/capture/h9:eth0":          "lab " + lab + " has no interface h9:eth0",
		"api/capture/h0":               `"h0" is no interface, expected NODE:IFACE`,
		"api/capture/h0:eth0?seconds=": "",
		"api/stream?run=1":             `run="1", expected 0 to 0`,
		"api/terminal/h9":              "lab " + lab + ` has no node "h9"`,
	} {
		if want == "" {
			continue
		}
		if status := p.ask(t, "GET", path, nil, &link); status != http.StatusBadRequest || link.Error != want {
			t.Errorf("%s: %d %q, want %q", path, status, link.Error, want)
		}
	}
}

// A capture is downloaded while it goes on, as `ndklab capture` writes it.
func TestDownload(t *testing.T) {
	lab := up(t, 2)
	_, p := openPage(t, lab)
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, "GET", string(p)+"api/capture/h0:eth0", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if name := resp.Header.Get("Content-Disposition"); resp.Header.Get("Content-Type") != "application/x-pcapng" || name != "attachment; filename="+lab+"-h0-eth0.pcapng" {
		t.Errorf("%q", resp.Header)
	}
	pinging := exec.CommandContext(ctx, filepath.Join(bin, "ndklab"), "exec", lab+"/h0", "--", "ping", "-q", "-i", "0.1", "10.0.0.2")
	if err := pinging.Start(); err != nil {
		t.Fatal(err)
	}
	file, err := pcapgo.NewNgReader(resp.Body, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	for echoes := 0; echoes < 4; { // both ways
		data, info, err := file.ReadPacketData()
		if err != nil {
			t.Fatal(err)
		}
		if info.Length == 98 && len(data) == 98 && data[23] == 1 { // ICMP, as ping sends it
			echoes++
		}
	}
	cancel()
	_ = pinging.Wait() // it was killed
	next := p.stream(t, 0)
	await(t, next, func(m *message) bool {
		return m.kind == "event" && strings.Contains(m.data, "capture of h0:eth0 is over")
	})
}

// Packets and sequences of queue pairs come from captures, which go on while the page asks.
func TestPackets(t *testing.T) {
	lab := up(t, 2)
	_, p := openPage(t, lab)
	var packets struct {
		Rows []struct {
			From, Opcode string
			PSN          *uint32
		}
		Error string
	}
	if status := p.ask(t, "GET", "api/packets/h0:eth0", nil, &packets); status != http.StatusOK || packets.Rows == nil {
		t.Fatalf("%d %+v", status, packets)
	}
	p.change(t, &live.Change{Act: "perf", Node: "h0", To: "h1", Settings: []string{"test=write-bw", "duration=10s", "rate=10mbit"}})
	written := func() bool {
		for _, row := range packets.Rows {
			if row.From == "h0:eth0" && strings.Contains(row.Opcode, "WRITE") && row.PSN != nil {
				return true
			}
		}
		return false
	}
	for !written() { // each answer waits for nothing but the machine
		if status := p.ask(t, "GET", "api/packets/h0:eth0?n=50", nil, &packets); status != http.StatusOK || len(packets.Rows) > 50 {
			t.Fatalf("%d %d rows %s", status, len(packets.Rows), packets.Error)
		}
	}
	var node struct {
		Connections []struct {
			QPN   uint32
			State string
		}
	}
	p.ask(t, "GET", "api/node/h0", nil, &node)
	var qpn uint32
	for _, c := range node.Connections {
		qpn = max(qpn, c.QPN)
	}
	if qpn == 0 {
		t.Fatalf("%+v", node)
	}
	var sequence struct {
		From   struct{ QPN uint32 }
		Points []struct{ Kind string }
	}
	for kinds := map[string]bool{}; !kinds["data"] || !kinds["ack"]; {
		if status := p.ask(t, "GET", fmt.Sprintf("api/sequence/h0/%d", qpn), nil, &sequence); status != http.StatusOK {
			t.Fatalf("%d %+v", status, sequence)
		}
		for _, point := range sequence.Points {
			kinds[point.Kind] = true
		}
	}
	for path, want := range map[string]string{
		"api/packets/h0:eth0?n=0":  "n=0: expected a number from 1 to 5000",
		"api/packets/h9:eth0":      `has no link with the endpoint "h9:eth0"`,
		"api/sequence/h0/16777216": `QPN "16777216": expected a number of 24 bits`,
		"api/sequence/h9/7":        `no node "h9"`,
	} {
		if status := p.ask(t, "GET", path, nil, &packets); status != http.StatusBadRequest || !strings.Contains(packets.Error, want) {
			t.Errorf("%s: %d %q, want %q", path, status, packets.Error, want)
		}
	}
}
