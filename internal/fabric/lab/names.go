package lab

import (
	"context"
	"errors"

	"github.com/ndklab/ndklab/topology"
)

// Names has the names of what is in a lab, in the order of the topology.
type Names struct {
	Nodes      []string // with processes: hosts and routers
	Switches   []string
	Interfaces []string // NODE:IFACE, both ends of each link
	Workloads  []string
}

// NamesOf are a topology's.
func NamesOf(t *topology.Topology) Names {
	var n Names
	for i := range t.Nodes {
		of := &n.Nodes
		if t.Nodes[i].Kind == topology.Switch {
			of = &n.Switches
		}
		*of = append(*of, t.Nodes[i].Name)
	}
	for i := range t.Links {
		for _, e := range t.Links[i].Endpoints {
			n.Interfaces = append(n.Interfaces, e.String())
		}
	}
	for i := range t.Workloads {
		n.Workloads = append(n.Workloads, t.Workloads[i].Name)
	}
	return n
}

// Names asks a lab what is in it.
func (l *Lab) Names(ctx context.Context) (Names, error) {
	return call(ctx, l.session, methodNames, nil)
}

// Up is the names of the caller's labs that are up, sorted. It asks none of them
// anything: whether they answer is not known.
func Up() ([]string, error) {
	dir, err := stateDir()
	if err != nil {
		return nil, err
	}
	names, err := labNames(dir) // sorted, as os.ReadDir has them
	if err != nil {
		return nil, err
	}
	up := []string{}
	for _, name := range names {
		locked, err := place{dir: dir, name: name}.lock(false)
		if err == nil {
			locked.Close()
		} else if errors.Is(err, errLocked) {
			up = append(up, name)
		}
	}
	return up, nil
}
