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

// An order is an action of the lab's core as a head sends it to a part. Both have the lab's topology: a node goes by its name,
// a link by its number, and the topology is left out.
type order struct {
	Kind   string                     // the name of the action's type
	Fields map[string]json.RawMessage // of the action
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

// orderOf returns an action as an order.
func orderOf(a core.Action) (order, error) {
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
			short = is.Number
		case []*topology.Link:
			numbers := make([]int, len(is))
			for i, l := range is {
				numbers[i] = l.Number
			}
			short = numbers
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

// action returns the action that an order is, in a lab of a topology whose links are known by number.
func (o *order) action(topo *topology.Topology, links map[int]*topology.Link) (core.Action, error) {
	t := orders()[o.Kind]
	if t == nil {
		return nil, control.Errorf(control.Usage, "no action is called %q", o.Kind)
	}
	v := reflect.New(t).Elem()
	link := func(number int) (*topology.Link, error) {
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
			var number int
			if err = json.Unmarshal(text, &number); err == nil {
				*into, err = link(number)
			}
		case *[]*topology.Link:
			var numbers []int
			err = json.Unmarshal(text, &numbers)
			for _, number := range numbers {
				l, missing := link(number)
				if missing != nil {
					return nil, missing
				}
				*into = append(*into, l)
			}
		default:
			err = json.Unmarshal(text, field)
		}
		if err != nil {
			return nil, control.Errorf(control.Usage, "%s: %s: %v", o.Kind, t.Field(i).Name, err)
		}
	}
	return v.Interface(), nil
}
