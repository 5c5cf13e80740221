package lab

import (
	"encoding/json"
	"fmt"
	"reflect"
	"sync"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/topology"
)

// An order is an action of the lab's core as a head sends it to a part. Both have the lab's topology, which is left out, and a
// node goes by its name. A link of the first topology goes by its number. Others are spelled out: a number is another link's
// after a change, of which a part may hear while orders from before are on their way.
type order struct {
	Kind   string                     // the name of the action's type
	Fields map[string]json.RawMessage // of the action
	Bridge int                        `json:",omitempty"` // of MakeSwitch: the number of its bridge
}

// orders returns the types of the actions that parts carry out, by name. Only heads and parts pay for it.
var orders = sync.OnceValue(func() map[string]reflect.Type {
	types := map[string]reflect.Type{}
	for _, a := range []core.Action{
		core.MakeSwitch{}, core.RemoveSwitch{}, core.StartAgent{}, core.PlaceFiles{}, core.Execute{}, core.Configure{}, core.Reconfigure{},
		core.SetRoutes{}, core.CheckHealth{}, core.PauseAgent{}, core.ResumeAgent{}, core.SignalAgent{}, core.KillAgent{},
		core.MakeEnds{}, core.RemoveEnd{}, core.ResizeLink{}, core.Impair{}, core.SetImpairment{}, core.AwaitIdle{}, core.ReleaseLink{},
		core.Connect{}, core.Disconnect{}, core.TakeApart{}, core.BeginLinks{}, core.RenewNames{}, core.AwaitSpanningTree{},
	} {
		t := reflect.TypeOf(a)
		types[t.Name()] = t
	}
	return types
})

// orderOf returns an action as an order. first has the links of the first topology.
func orderOf(a core.Action, first map[*topology.Link]bool) (order, error) {
	v := reflect.ValueOf(a)
	o := order{Kind: v.Type().Name(), Fields: map[string]json.RawMessage{}}
	for i := range v.NumField() {
		var short any
		switch is := v.Field(i).Interface().(type) {
		case *topology.Topology:
			continue
		case *topology.Node:
			short = is.Name
		case *topology.Link:
			short = shortLink(is, first)
		case []*topology.Link:
			links := make([]any, len(is))
			for i, l := range is {
				links[i] = shortLink(l, first)
			}
			short = links
		default:
			short = is
		}
		text, err := json.Marshal(short)
		if err != nil {
			return o, fmt.Errorf("%s: %w", o.Kind, err)
		}
		o.Fields[v.Type().Field(i).Name] = text
	}
	return o, nil
}

// shortLink returns what stands for a link.
func shortLink(l *topology.Link, first map[*topology.Link]bool) any {
	if first[l] {
		return l.Number
	}
	return l
}

// action returns the action that an order is, in a lab of a topology. links are those of its first one, by number.
func (o *order) action(topo *topology.Topology, links map[int]*topology.Link) (core.Action, error) {
	t := orders()[o.Kind]
	if t == nil {
		return nil, control.Errorf(control.Usage, "no action is called %q", o.Kind)
	}
	v := reflect.New(t).Elem()
	link := func(text json.RawMessage) (*topology.Link, error) {
		var number int
		if len(text) > 0 && text[0] == '{' {
			l := new(topology.Link)
			return l, json.Unmarshal(text, l)
		}
		if err := json.Unmarshal(text, &number); err != nil {
			return nil, err
		}
		if l := links[number]; l != nil {
			return l, nil
		}
		return nil, control.Errorf(control.Usage, "%s: the lab has no link %d", o.Kind, number)
	}
	for i := range t.NumField() {
		field := v.Field(i).Addr().Interface()
		text := o.Fields[t.Field(i).Name]
		var err error
		switch into := field.(type) {
		case **topology.Topology:
			*into = topo
		case **topology.Node:
			var name string
			if err = json.Unmarshal(text, &name); err != nil {
				break
			}
			if *into = topo.FindNode(name); *into == nil {
				return nil, control.Errorf(control.Usage, "%s: the lab has no node %q", o.Kind, name)
			}
		case **topology.Link:
			*into, err = link(text)
		case *[]*topology.Link:
			var texts []json.RawMessage
			err = json.Unmarshal(text, &texts)
			for i := 0; i < len(texts) && err == nil; i++ {
				var l *topology.Link
				l, err = link(texts[i])
				*into = append(*into, l)
			}
		default:
			err = json.Unmarshal(text, field)
		}
		if err != nil {
			if control.CodeOf(err) == control.Usage {
				return nil, err
			}
			return nil, control.Errorf(control.Usage, "%s: %s: %v", o.Kind, t.Field(i).Name, err)
		}
	}
	return v.Interface(), nil
}
