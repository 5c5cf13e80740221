package main

import (
	"fmt"
	"slices"

	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/topology/diff"
	"github.com/ndklab/ndklab/internal/topology/parts"
	"github.com/ndklab/ndklab/topology"
	"github.com/spf13/cobra"
)

// A dryLab says what up would make, with the field names of an inspection.
type dryLab struct {
	Lab       string        `json:"lab"`
	Seed      *uint64       `json:"seed"` // nil: it would be drawn
	Nodes     []dryNode     `json:"nodes"`
	Links     []dryLink     `json:"links"`
	Externals []dryExternal `json:"externals"`
	// Placement says how the lab would be laid over hosts; null without --hosts.
	Placement *parts.Summary `json:"placement,omitempty"`
}

type dryNode struct {
	Name      string   `json:"name"`
	Kind      string   `json:"kind"`
	Addresses []string `json:"addresses"`
}

type dryLink struct {
	Endpoints  [2]string       `json:"endpoints"`
	MTU        int             `json:"mtu"`
	Engine     string          `json:"engine"` // that would impair it
	State      string          `json:"state"`
	Directions [2]dryDirection `json:"directions"`
}

type dryDirection struct {
	From     string   `json:"from"`
	Settings []string `json:"settings"`
}

type dryExternal struct {
	Endpoint  string   `json:"endpoint"`
	Addresses []string `json:"addresses"`
}

// dryRun says what the lab of a file would have, and what would become of one of its
// name that is up.
func dryRun(cmd *cobra.Command, file string, flags *fileFlags, seed *seedFlag, reconfigure bool, output format) error {
	t, err := flags.read(cmd, file)
	if err != nil {
		return err
	}
	if err := lab.Refuse(t); err != nil {
		return err
	}
	if seed.given {
		t.Seed, t.HasSeed = seed.value, true
	}
	placed, err := flags.hosts.place(t)
	if err != nil {
		return err
	}
	names, err := lab.Up()
	switch {
	case err != nil:
		return err
	case !slices.Contains(names, t.Name):
	case reconfigure:
		fmt.Fprintf(cmd.ErrOrStderr(), "lab %s is up, and would be taken down first\n", t.Name)
	default:
		fmt.Fprintf(cmd.ErrOrStderr(), "lab %[1]s is up, and would have to be taken down first, as --reconfigure does; `ndklab apply` changes it\n", t.Name)
	}
	made, hosts := newDryLab(t), ""
	if made.Placement = placed; placed != nil {
		hosts = placed.String()
	}
	return output.printText(cmd.OutOrStdout(), made,
		fmt.Sprintf("%s%slab %s would have nodes: %d, links: %d; nothing was made\n", diff.All(t), hosts, t.Name, len(t.Nodes), len(t.Links)))
}

func newDryLab(t *topology.Topology) dryLab {
	d := dryLab{Lab: t.Name, Nodes: []dryNode{}, Links: []dryLink{}, Externals: []dryExternal{}}
	if t.HasSeed {
		d.Seed = &t.Seed
	}
	for _, n := range t.Nodes {
		d.Nodes = append(d.Nodes, dryNode{n.Name, string(n.Kind), addressTexts(n.Interfaces)})
	}
	for _, l := range t.Links {
		made := dryLink{MTU: l.MTU, Engine: string(l.Engine), State: "up"}
		if l.Down {
			made.State = "down"
		}
		for end, e := range l.Endpoints {
			made.Endpoints[end] = e.String()
			made.Directions[end] = dryDirection{e.String(), append([]string{}, l.Directions[end].Settings()...)}
		}
		d.Links = append(d.Links, made)
	}
	for _, x := range t.Externals {
		d.Externals = append(d.Externals, dryExternal{t.Links[x.Link].Endpoints[x.End].String(), addressTexts([]topology.Interface{x})})
	}
	return d
}

// addressTexts is the addresses of interfaces in CIDR form.
func addressTexts(faces []topology.Interface) []string {
	texts := []string{}
	for _, f := range faces {
		for _, a := range f.Addresses {
			texts = append(texts, a.String())
		}
	}
	return texts
}
