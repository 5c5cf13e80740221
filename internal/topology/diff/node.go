package diff

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/ndklab/ndklab/topology"
)

// inPlace is the field of a node that changes while it goes on: the lab reads it
// when it needs them.
const inPlace = "Restart"

// isLimit reports whether a field of a node limits its processes. A limit changes while they
// go on, but whether there is one they have from when they start.
func isLimit(field string) bool { return field == "CPU" || field == "Memory" || field == "PIDs" }

// compareNodes adds what becomes of nodes, and returns the names of those that are
// replaced, whose links are so, too.
func (d *Difference) compareNodes(was, is *topology.Topology) map[string]bool {
	before := make(map[string]*topology.Node, len(was.Nodes))
	for i := range was.Nodes {
		before[was.Nodes[i].Name] = &was.Nodes[i]
	}
	stays := make(map[string]bool, len(is.Nodes))
	for i := range is.Nodes {
		stays[is.Nodes[i].Name] = true
	}
	for i := range was.Nodes {
		if n := &was.Nodes[i]; !stays[n.Name] {
			d.Nodes = append(d.Nodes, Node{Action: Remove, Name: n.Name, Was: n})
		}
	}
	replaced := make(map[string]bool)
	for i := range is.Nodes {
		n := &is.Nodes[i]
		old := before[n.Name]
		if old == nil {
			d.Nodes = append(d.Nodes, Node{Action: Add, Name: n.Name, Is: n})
			continue
		}
		if changes := compareNode(old, n); len(changes) > 0 {
			c := Node{Action: nodeAction(old, n, changes), Name: n.Name, Changes: changes, Was: old, Is: n}
			replaced[n.Name] = c.Action == Replace
			d.Nodes = append(d.Nodes, c)
		}
	}
	return replaced
}

// nodeAction returns the action that the changes of a node take.
func nodeAction(was, is *topology.Node, changes []Change) Action {
	if was.Kind != is.Kind || was.SpanningTree != is.SpanningTree {
		return Replace // a switch is a bridge, which is not told so later
	}
	if slices.ContainsFunc(changes, func(c Change) bool { return c.Why != "" }) {
		return Restart
	}
	return Alter
}

// compareNode returns the changes of a node of that name, but for the links that it
// gets and loses.
func compareNode(was, is *topology.Node) []Change {
	var changes []Change
	a, b := reflect.ValueOf(*was), reflect.ValueOf(*is)
	for i := range a.NumField() {
		field := a.Type().Field(i).Name
		x, y := a.Field(i).Interface(), b.Field(i).Interface()
		if field == "HostAt" || field == "TogetherAt" || same(x, y) { // a place in the file is nothing that a node has
			continue
		}
		switch field {
		case "Interfaces":
			changes = append(changes, compareFaces(was, is)...)
		case "Adapter":
			changes = append(changes, compareFields("adapter.", x, y, "its adapter has its settings from when it is opened")...)
		case "Setup":
			changes = append(changes, compareFields("", x, y, "it is for nodes that start")...)
		case "Routes":
			changes = append(changes, Change{Key: routesKey, From: fmt.Sprint(len(was.Routes)), To: fmt.Sprint(len(is.Routes))})
		default:
			c := Change{Key: key(field), From: value(field, x), To: value(field, y)}
			switch limited := !a.Field(i).IsZero() && !b.Field(i).IsZero(); {
			case isLimit(field) && !limited:
				c.Why = "whether its processes are limited they have from when they start"
			case !isLimit(field) && field != inPlace:
				c.Why = "its agent has this from when it starts"
			}
			changes = append(changes, c)
		}
	}
	return changes
}

// routesKey is the key of a change of routes, which no file gives.
const routesKey = "routes"

// compareFaces returns the changes of the addresses of a node. An address that it
// loses is taken away. One that it gets has a host restarted: an adapter binds the
// addresses that there are when it is opened.
func compareFaces(was, is *topology.Node) []Change {
	before := make(map[string]topology.Interface)
	for _, f := range was.Interfaces {
		before[f.Name] = f
	}
	var changes []Change
	for _, f := range is.Interfaces {
		old := before[f.Name].Addresses
		if slices.Equal(old, f.Addresses) {
			continue
		}
		c := Change{Key: f.Name, From: addresses(old), To: addresses(f.Addresses)}
		gets := slices.ContainsFunc(f.Addresses, func(a netip.Prefix) bool { return !slices.Contains(old, a) })
		if gets && is.Kind == topology.Host {
			c.Why = "its adapter binds the addresses that there are when it is opened"
		}
		changes = append(changes, c)
	}
	return changes
}

// compareFields returns the changes of the fields of a structure. All need what why
// says.
func compareFields(prefix string, was, is any, why string) []Change {
	var changes []Change
	a, b := reflect.ValueOf(was), reflect.ValueOf(is)
	for i := range a.NumField() {
		field := a.Type().Field(i).Name
		if x, y := a.Field(i).Interface(), b.Field(i).Interface(); !same(x, y) {
			changes = append(changes, Change{Key: prefix + key(field), From: value(field, x), To: value(field, y), Why: why})
		}
	}
	return changes
}

// same compares two values of fields. Nothing in a list is as no list.
func same(x, y any) bool {
	a, b := reflect.ValueOf(x), reflect.ValueOf(y)
	if k := a.Kind(); (k == reflect.Slice || k == reflect.Map) && a.Len() == 0 && b.Len() == 0 {
		return true
	}
	return reflect.DeepEqual(x, y)
}

// key returns the name of a field as files write it: max_srq_depth of MaxSrqDepth.
func key(field string) string {
	field = strings.NewReplacer("RoCE", "Roce", "PIDs", "Pids", "NoVerbs", "Verbs").Replace(field)
	upper := func(i int) bool { return i < len(field) && field[i] >= 'A' && field[i] <= 'Z' }
	var b strings.Builder
	for i := range len(field) {
		// A word begins behind a small letter, and with the last capital of several.
		if i > 0 && upper(i) && (!upper(i-1) || i+1 < len(field) && !upper(i+1)) {
			b.WriteByte('_')
		}
		b.WriteByte(field[i])
	}
	return strings.ToLower(b.String())
}

// longest bounds the characters of a value that are shown.
const longest = 60

// value is the value of a field as people read it.
func value(field string, of any) string {
	v := reflect.ValueOf(of)
	if v.Kind() == reflect.Pointer {
		switch {
		case v.IsNil() && v.Type().Elem().Kind() == reflect.Struct:
			return "none"
		case v.IsNil():
			return "the default"
		}
		return value(field, v.Elem().Interface())
	}
	if v.IsZero() && isLimit(field) {
		return "none"
	}
	text := fmt.Sprint(of)
	switch {
	case field == "Restart":
		return choice(v.Bool(), "always", "never")
	case field == "NoVerbs":
		return choice(v.Bool(), "off", "on")
	case field == "Memory":
		text = topology.FormatSize(v.Uint())
	case v.Kind() == reflect.Slice || v.Kind() == reflect.Map || v.Kind() == reflect.Struct:
		if v.IsZero() {
			return "none"
		}
		return "others"
	case text == "":
		return "none"
	}
	return short(text)
}

// short is text of bearable length.
func short(text string) string {
	if runes := []rune(text); len(runes) > longest {
		return string(runes[:longest]) + "..."
	}
	return text
}

func addresses(list []netip.Prefix) string {
	if len(list) == 0 {
		return "none"
	}
	var texts []string
	for _, a := range list {
		texts = append(texts, a.String())
	}
	return strings.Join(texts, " ")
}
