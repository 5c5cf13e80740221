package lab

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/capture"
	"github.com/ndklab/ndklab/topology"
	"golang.org/x/sys/unix"
)

// remembered is the files that a Memory writes.
func remembered(t *testing.T, m *Memory) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	err := m.Write(testContext(t), func(name string, write func(io.Writer) error) error {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			return err
		}
		files[name] = b.Bytes()
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	return files
}

// remember has a lab's packets remembered from now on.
func remember(t *testing.T, l *Lab) *Memory {
	t.Helper()
	m, err := l.Remember(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	<-m.opened
	if m.failed != nil {
		t.Fatal(m.failed)
	}
	return m
}

// volleys returns the number of volleys of packets of a size that the file of links has, by
// the end that sent them.
func volleys(t *testing.T, files map[string][]byte, size int) map[string]int {
	t.Helper()
	all, _ := readPackets(t, bytes.NewReader(files["links.pcapng"]))
	found := map[string]int{}
	for _, p := range all {
		if p.comment == fmt.Sprintf("the first of %d packets of a super-packet", volley) && int(binary.BigEndian.Uint16(p.frame[16:])) == 28+volley*size {
			found[p.iface]++
		}
	}
	return found
}

// A Memory has what was sent into links, and what the engine lost of it, in files beside
// those of the lab itself.
func TestMemory(t *testing.T) {
	l := start(t, ring(uniqueName(t), 2))
	m := remember(t, l)
	fire(t, l, 4791, 100)
	if got := volleys(t, remembered(t, m), 100); len(got) != 1 || got["n0:eth0"] != 1 {
		t.Errorf("volleys were sent by %v", got)
	}
	// Also when an engine has the link, and of a node that has come again.
	if err := l.Links.Set(testContext(t), "n0:eth0", "", topology.Change{Loss: &topology.Loss{Rate: 1}}); err != nil {
		t.Fatal(err)
	}
	act(t, l, "n0", StopNode, nodeDown)
	act(t, l, "n0", StartNode, nodeReady)
	var files map[string][]byte
	eventually(t, testTime, func() string { // the event may take a moment
		fire(t, l, 4791, 101)
		files = remembered(t, m)
		if volleys(t, files, 101)["n0:eth0"] == 0 {
			return "no volley since the node has come again"
		}
		return ""
	})
	if !bytes.Contains(files["losses.log"], []byte(`"frame":143,"opcode":0,"qp":0,"psn":0,"fate":"lost","cause":"loss"`)) {
		t.Errorf("losses are\n%s", files["losses.log"])
	}
	for name, want := range map[string]string{
		"lab.log": "n0:eth0", "events.jsonl": `"kind":"node-up"`, "inspect.json": `"links": `, "connections.json": `"connections": `,
	} {
		if !strings.Contains(string(files[name]), want) {
			t.Errorf("%s lacks %s:\n%s", name, want, files[name])
		}
	}

	// A file that cannot be written keeps no other from being written.
	full := errors.New("full")
	var tried []string
	err := m.Write(testContext(t), func(name string, _ func(io.Writer) error) error {
		tried = append(tried, name)
		return fmt.Errorf("%s: %w", name, full)
	})
	want := []string{"lab.log", "inspect.json", "connections.json", "events.jsonl", "losses.log", "links.pcapng"}
	if !slices.Equal(tried, want) || !errors.Is(err, full) {
		t.Errorf("it tried %q, want %q: %v", tried, want, err)
	}
}

// It has its log and its packets, too, if the lab has died.
func TestMemoryOfADeadLab(t *testing.T) {
	l := start(t, ring(uniqueName(t), 2))
	m := remember(t, l)
	fire(t, l, 4791, 100)
	if err := unix.Kill(processOf(t, l.Info().Lab, supervisorName), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-l.Done()
	files := remembered(t, m)
	if got := volleys(t, files, 100); got["n0:eth0"] != 1 {
		t.Errorf("volleys were sent by %v", got)
	}
	if len(files) != 2 || len(files["lab.log"]) == 0 {
		t.Errorf("there are %d files, the log has %d bytes", len(files), len(files["lab.log"]))
	}
}

// Sockets that come when the lab has been closed leave nothing in this process.
func TestMemoryIsForgotten(t *testing.T) {
	topo := ring(uniqueName(t), 2)
	l, err := Start(testContext(t), topo, Options{})
	if err != nil {
		t.Fatal(err)
	}
	m := remember(t, l)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	socket, err := capture.RecentSocket()
	if err != nil {
		t.Skip(err) // this process is no root's
	}
	params := middlesParams{Middles: []middle{{"n0:eth0", 1}}, Of: 1}
	if err := m.take(&control.Request{Files: []*os.File{socket}}, params); err != nil {
		t.Error(err)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(maps), "socket:["); n > 0 {
		t.Errorf("memory of %d sockets is left", n)
	}
}
