package lab

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/topology"
)

// Every action of the core reaches a part as it was, with that part's own nodes and links.
func TestOrders(t *testing.T) {
	topo, far := ring("lab", 3), ring("lab", 3)
	links, first := map[int]*topology.Link{}, map[*topology.Link]bool{}
	for i := range far.Links {
		links[far.Links[i].Number] = &far.Links[i]
		first[&topo.Links[i]] = true
	}
	of := core.Of{Node: "n1", Life: 7}
	routes := []topology.Route{{To: netip.MustParsePrefix("10.0.0.0/8"), Via: []netip.Addr{netip.MustParseAddr("10.0.0.2")}}}
	to := topology.Impairment{Delay: time.Millisecond, Loss: topology.Loss{Rate: 0.25, Burst: 3}, Rate: 1e9}
	both := [2]topology.Impairment{to, {}}
	actions := func(topo *topology.Topology) []core.Action {
		l := &topo.Links[1]
		return []core.Action{
			core.MakeSwitch{Spec: &topo.Nodes[1]}, core.RemoveSwitch{Spec: &topo.Nodes[2]},
			core.StartAgent{Of: of, Topology: topo, Routes: routes, Restarts: 3}, core.PlaceFiles{Of: of}, core.Execute{Of: of, Command: "true"},
			core.Configure{Of: of}, core.Reconfigure{Of: of, Topology: topo, Routes: []topology.Route{}, Restarts: 1}, core.SetRoutes{Of: of},
			core.CheckHealth{Of: of}, core.PauseAgent{Of: of}, core.ResumeAgent{Of: of}, core.SignalAgent{Of: of, Signal: 15}, core.KillAgent{Of: of},
			core.MakeEnds{Link: l, Ends: [2]bool{true, false}, Up: true}, core.RemoveEnd{Link: l, End: 1}, core.ResizeLink{Link: l},
			core.Impair{Link: l, Asked: both}, core.SetImpairment{Link: l, Direction: 1, To: to}, core.AwaitIdle{Link: l}, core.ReleaseLink{Link: l},
			core.Connect{Link: l}, core.Disconnect{Link: l}, core.TakeApart{Link: l}, core.BeginLinks{}, core.RenewNames{},
			core.AwaitSpanningTree{Links: []*topology.Link{l, &topo.Links[0]}, All: true},
		}
	}
	want := actions(far)
	for i, a := range actions(topo) {
		o, err := orderOf(a, first)
		if err != nil {
			t.Fatal(err)
		}
		sent, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		var came order
		if err := json.Unmarshal(sent, &came); err != nil {
			t.Fatal(err)
		}
		got, err := came.action(far, links)
		if err != nil || !reflect.DeepEqual(got, want[i]) {
			t.Errorf("%s: %v\n%s", sent, err, cmp.Diff(want[i], got))
		}
		if len(sent) > 500 { // no topology goes along
			t.Errorf("%d bytes: %s", len(sent), sent)
		}
	}
}

// A link that is not of the first topology reaches a part as it is, whatever link has had its number.
func TestOrderOfLaterLink(t *testing.T) {
	first, later := ring("lab", 3), ring("lab", 3)
	links := map[int]*topology.Link{}
	for i := range first.Links {
		links[first.Links[i].Number] = &first.Links[i]
	}
	later.Links[1].MTU = 1500
	later.Links[1].Directions[0] = topology.Impairment{Delay: time.Millisecond, Loss: topology.Loss{Rate: 0.25}}
	later.Links[1].Endpoints[0].Node = "new"
	for _, a := range []core.Action{
		core.Connect{Link: &later.Links[1]},
		core.AwaitSpanningTree{Links: []*topology.Link{&later.Links[1], &later.Links[2]}},
	} {
		o, err := orderOf(a, map[*topology.Link]bool{&first.Links[1]: true})
		if err != nil {
			t.Fatal(err)
		}
		got, err := o.action(first, links)
		if err != nil || !reflect.DeepEqual(got, a) {
			t.Errorf("%v\n%s", err, cmp.Diff(a, got))
		}
	}
}

// Parts know all actions of package core but those that a head carries out itself.
func TestEveryActionIsAnOrder(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../core/action.go", nil, 0)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("it is run where the source is, and here by TestAsOrdinaryUser")
	}
	if err != nil {
		t.Fatal(err)
	}
	own := []string{"Action", "ForgetNode", "ForgetLink", "Notify", "Answer", "End", "Of"}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.TypeSpec); ok && orders()[spec.Name.Name] == nil && !slices.Contains(own, spec.Name.Name) {
			t.Errorf("there is no order of %s", spec.Name.Name)
		}
		return true
	})
}

// A part refuses what makes no sense.
func TestBadOrders(t *testing.T) {
	topo := ring("lab", 2)
	for _, c := range []struct {
		order order
		want  string
	}{
		{order{Kind: "Explode"}, `no action is called "Explode"`},
		{order{Kind: "Connect", Fields: map[string]json.RawMessage{"Link": json.RawMessage("70000")}}, "Connect: the lab has no link 70000"},
		{order{Kind: "Connect"}, "Connect: Link: unexpected end of JSON input"},
		{order{Kind: "MakeSwitch", Fields: map[string]json.RawMessage{"Spec": json.RawMessage(`"nobody"`)}}, `MakeSwitch: the lab has no node "nobody"`},
		{order{Kind: "AwaitSpanningTree", Fields: map[string]json.RawMessage{"Links": json.RawMessage(`[9]`)}}, "AwaitSpanningTree: the lab has no link 9"},
	} {
		_, err := c.order.action(topo, map[int]*topology.Link{})
		if control.CodeOf(err) != control.Usage || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %s", c.order, err, c.want)
		}
	}
}
