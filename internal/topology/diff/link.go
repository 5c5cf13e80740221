package diff

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/ndklab/ndklab/topology"
)

// remade are the fields of a link that have it replaced, and why: the kernel's
// interfaces are made for them.
var remade = map[string]string{
	"Number":  "its interfaces are named by it",
	"Engine":  "its interfaces are made for one engine",
	"Offload": "its interfaces are made to carry packets so",
}

// compareLinks adds what becomes of links; replaced are the nodes of which none of
// the old interfaces stays.
func (d *Difference) compareLinks(was, is *topology.Topology, replaced map[string]bool) {
	before := make(map[[2]topology.Endpoint]*topology.Link, len(was.Links))
	for i := range was.Links {
		before[was.Links[i].Endpoints] = &was.Links[i]
	}
	stays := make(map[[2]topology.Endpoint]bool, len(is.Links))
	for i := range is.Links {
		stays[is.Links[i].Endpoints] = true
	}
	add := func(l Link) {
		l.Ends = [2]string{l.Endpoints[0].String(), l.Endpoints[1].String()}
		d.Links = append(d.Links, l)
	}
	for i := range was.Links {
		if l := &was.Links[i]; !stays[l.Endpoints] {
			add(Link{Action: Remove, Endpoints: l.Endpoints, Was: l})
		}
	}
	for i := range is.Links {
		l := &is.Links[i]
		old := before[l.Endpoints]
		if old == nil {
			add(Link{Action: Add, Endpoints: l.Endpoints, Is: l})
			continue
		}
		c := Link{Action: Alter, Endpoints: l.Endpoints, Changes: compareLink(old, l), Was: old, Is: l}
		for _, e := range l.Endpoints {
			if replaced[e.Node] {
				c.Changes = append(c.Changes, Change{Key: "node " + e.Node, From: "as it was", To: "another", Why: "its interface there goes with the node"})
			}
		}
		if len(c.Changes) == 0 {
			continue
		}
		if slices.ContainsFunc(c.Changes, func(c Change) bool { return c.Why != "" }) {
			c.Action = Replace
		}
		add(c)
	}
}

// compareLink lists what changes of a link between the same ends.
func compareLink(was, is *topology.Link) []Change {
	var changes []Change
	a, b := reflect.ValueOf(*was), reflect.ValueOf(*is)
	for i := range a.NumField() {
		field := a.Type().Field(i).Name
		x, y := a.Field(i).Interface(), b.Field(i).Interface()
		switch {
		case field == "EngineAt" || same(x, y): // a place in the file is nothing that a link has
		case field == "Directions":
			changes = append(changes, compareDirections(was, is)...)
		case field == "Tolerance":
			changes = append(changes, compareFields("tolerance.", x, y, "")...)
		case field == "AllowOverrun":
			changes = append(changes, Change{Key: "overrun", From: choice(was.AllowOverrun, "allow", "fail"), To: choice(is.AllowOverrun, "allow", "fail")})
		case field == "Offload":
			changes = append(changes, Change{Key: "offload", From: choice(was.Offload, "on", "off"), To: choice(is.Offload, "on", "off"), Why: remade[field]})
		case field == "MTU" && is.Engine == topology.Netem:
			changes = append(changes, Change{Key: "mtu", From: fmt.Sprint(x), To: fmt.Sprint(y), Why: "netem reckons with it from when it is there"})
		default:
			changes = append(changes, Change{Key: key(field), From: fmt.Sprint(x), To: fmt.Sprint(y), Why: remade[field]})
		}
	}
	return changes
}

func choice(of bool, yes, no string) string {
	if of {
		return yes
	}
	return no
}

// compareDirections lists what changes of what a link does to packets, once if it is
// the same in both directions.
func compareDirections(was, is *topology.Link) []Change {
	there := compareImpairments(was.Directions[0], is.Directions[0])
	back := compareImpairments(was.Directions[1], is.Directions[1])
	if slices.Equal(there, back) {
		return there
	}
	for i := range there {
		there[i].Key += " from " + is.Endpoints[0].Node
	}
	for i := range back {
		back[i].Key += " from " + is.Endpoints[1].Node
	}
	return append(there, back...)
}

func compareImpairments(was, is topology.Impairment) []Change {
	if was.Equal(is) {
		return nil
	}
	before, after := settings(was), settings(is)
	var changes []Change
	for _, keyed := range [][]string{was.Settings(), is.Settings()} {
		for _, s := range keyed {
			k, _, _ := strings.Cut(s, "=")
			from, to := before[k], after[k]
			known := slices.ContainsFunc(changes, func(c Change) bool { return c.Key == k })
			if from != to && !known {
				changes = append(changes, Change{Key: k, From: short(orNone(from)), To: short(orNone(to))})
			}
		}
	}
	return changes
}

// settings returns the settings that make an impairment of none, by key.
func settings(i topology.Impairment) map[string]string {
	values := make(map[string]string)
	for _, s := range i.Settings() {
		k, v, _ := strings.Cut(s, "=")
		values[k] = v
	}
	return values
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

// plans names the parts that Difference.Plans tells of.
func plans(was, is *topology.Topology) []string {
	names := []string{}
	for _, p := range []struct {
		name   string
		differ bool
	}{
		{"labels", relabelled(was.Labels, is.Labels)},
		{"hosts", was.OnLoss != is.OnLoss},
		{"convergence", was.Convergence != is.Convergence},
		{"workloads", !same(workloads(was), workloads(is))},
		{"timeline", !same(events(was), events(is)) || !same(chaos(was), chaos(is))},
		{"checks", !same(checks(was), checks(is)) || !same(baseline(was), baseline(is))},
		{"capture", !same(was.Captures, is.Captures)},
	} {
		if p.differ {
			names = append(names, p.name)
		}
	}
	return names
}

// relabelled reports whether a lab is to have labels that it has not. Those that it has
// beyond the file's, it was given when it was made.
func relabelled(was, is map[string]string) bool {
	for name, value := range is {
		if before, ok := was[name]; !ok || before != value {
			return true
		}
	}
	return false
}

// The functions below return plans as they are compared: without their places in the
// file, and with the ends of a link in the place of its index, since both change with
// the order of a file.

func workloads(t *topology.Topology) []topology.Workload {
	all := slices.Clone(t.Workloads)
	for i := range all {
		all[i].Place = topology.Place{}
	}
	return all
}

// An onLinks is a part of a plan, and the ends of the links that it is about.
type onLinks[T any] struct {
	part T
	ends [][2]topology.Endpoint
}

func events(t *topology.Topology) []onLinks[topology.Event] {
	var all []onLinks[topology.Event]
	for _, e := range t.Timeline {
		n := onLinks[topology.Event]{part: e}
		if e.OfLink() {
			n.ends = ends(t, e.Link)
		}
		n.part.Link, n.part.Place = 0, topology.Place{}
		all = append(all, n)
	}
	return all
}

func chaos(t *topology.Topology) []onLinks[topology.Chaos] {
	var all []onLinks[topology.Chaos]
	for _, c := range t.Chaos {
		n := onLinks[topology.Chaos]{c, ends(t, c.Links...)}
		n.part.Links, n.part.Place = nil, topology.Place{}
		all = append(all, n)
	}
	return all
}

func checks(t *topology.Topology) []onLinks[topology.Check] {
	var all []onLinks[topology.Check]
	for _, c := range t.Checks {
		n := onLinks[topology.Check]{part: c}
		if c.OfLink {
			n.ends = ends(t, c.Link)
		}
		n.part.Link, n.part.Place = 0, topology.Place{}
		all = append(all, n)
	}
	return all
}

func baseline(t *topology.Topology) topology.Baseline {
	if t.Baseline == nil {
		return topology.Baseline{}
	}
	b := *t.Baseline
	b.Place = topology.Place{}
	return b
}

func ends(t *topology.Topology, links ...int) [][2]topology.Endpoint {
	var all [][2]topology.Endpoint
	for _, i := range links {
		all = append(all, t.Links[i].Endpoints)
	}
	return all
}
