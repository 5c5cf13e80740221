package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/topology"
)

// externalAtSecond is a lab of two nodes, each at a host of its own, of which the one at the second has a link to outside.
func externalAtSecond(t *testing.T) *topology.Topology {
	topo := withExternal(ring(uniqueName(t), 2))
	topo.Nodes[0].Host = "2"
	topo.Nodes[1].Host = "1"
	return topo
}

// The end outside of a link is at its node's host, which the report names. It takes frames and gives them, through the engine
// of that host, and is captured there.
func TestExternalAtItsHost(t *testing.T) {
	topo := externalAtSecond(t)
	topo.Links[1].Directions[0].Delay = outsideDelay
	l := startWith(t, topo, Options{Hosts: twoHosts})
	x := onlyExternal(t, l)
	if x.Host != "host2" {
		t.Errorf("%+v, want it at host2", x)
	}
	if got := program(t, l, "n0", fmt.Sprintf("echo %d", outsidePort)).line(t); got != "bound" {
		t.Fatal(got)
	}
	path := filepath.Join(t.TempDir(), "outside.pcapng")
	recording := startRecording(t, l, Recording{Capture: topology.Capture{Interfaces: endpoints("external:tap0"), File: path}})
	if got := attach(t, x).ping(t, echoTime); got == "lost" {
		t.Error("the echo is lost")
	}
	recording.end(t)
	if packets := readCapture(t, path); len(packets) < 2 {
		t.Errorf("packets captured outside: %d, want an echo and its answer", len(packets))
	}
}

// Nothing of an external is left when its host's worker is killed, and a lab of the same name can be made at once.
func TestExternalOfHostThatDies(t *testing.T) {
	topo := externalAtSecond(t)
	for range 2 {
		l := startWith(t, topo, Options{Hosts: twoHosts})
		kill(t, processOf(t, topo.Name, "ndklab-worker "+topo.Name+"/host2"))
		<-l.Done()
		eventually(t, testTime, func() string { return remains(t, topo.Name) })
	}
}

// A name that an external cannot have is refused with its host. The part removes the name of one that is over.
func TestExternalNamesAtHost(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("externals of ordinary users have no names")
	}
	topo := externalAtSecond(t)
	name := filepath.Join(namesDir, topo.Name+"."+outsideName)
	for _, c := range []struct{ leads, want string }{
		{"/nowhere", "host host2: make the externals: a network namespace with the name " + topo.Name + "." + outsideName + " exists already"},
		{"/proc/1/root/run/ndklab/ns/" + topo.Name + "/" + outsideName, ""},
	} {
		if err := os.Symlink(c.leads, name); err != nil {
			t.Fatal(err)
		}
		l, err := Start(testContext(t), topo, Options{Hosts: twoHosts})
		switch {
		case c.want != "":
			wantCode(t, err, control.Usage)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
		case err != nil:
			t.Error(err)
		default:
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := os.Remove(name); c.want != "" && err != nil || c.want == "" && err == nil {
			t.Errorf("the name %s: removing it afterwards: %v", c.leads, err)
		}
	}
	if rest := remains(t, topo.Name); rest != "" {
		t.Errorf("left behind: %s", rest)
	}
}
