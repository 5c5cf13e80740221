package lab

import (
	"strings"
	"testing"

	"github.com/ndklab/ndklab/internal/control"
)

// pairsFile is a lab of two hosts: a and b are at the first, c and d at the second.
const pairsFile = `topology:
  nodes: {a: {host: 1}, b: {host: 1}, c: {host: 2}, d: {host: 2}, g: {host: 1}, h: {host: 2}}
  links:
    - {endpoints: ["g:eth0", "h:eth0"]}
    - {endpoints: ["a:eth0", "b:eth0"]}
    - {endpoints: ["b:eth1", "c:eth0"], delay: 1ms, overrun: allow}
    - {endpoints: ["c:eth1", "d:eth0"]}
`

// hostsOfLinks returns the hosts of all links that cross from one to another, by their first ends.
func hostsOfLinks(t *testing.T, l *Lab) string {
	t.Helper()
	links, err := l.Links.Inspect(testContext(t), "")
	if err != nil {
		t.Fatal(err)
	}
	var cross []string
	for _, k := range links {
		if k.Hosts != nil {
			cross = append(cross, k.Endpoints[0]+" "+k.Hosts[0]+" "+k.Hosts[1])
		}
	}
	return strings.Join(cross, ", ")
}

// A lab over several hosts becomes that of another file: links within a host and across, new ones and changed ones, nodes at
// either host that were not there before and others that are no more. All others go on where they are.
func TestApplyAcrossHosts(t *testing.T) {
	l := startWith(t, parsed(t, uniqueName(t), nil, pairsFile), Options{Hosts: twoHosts})
	reach := func(from string, to ...string) {
		t.Helper()
		for _, name := range to {
			if status, out := output(t, l, from, "ping -c 2 -i 0.01 -W 5 "+name); status != 0 {
				t.Errorf("%s to %s: status %d, %s", from, name, status, out)
			}
		}
	}
	before := inspected(t, l)
	if got := hostsOfLinks(t, l); got != "g:eth0 host1 host2, b:eth1 host1 host2" {
		t.Errorf("links that cross: %s", got)
	}
	write := writer(t, l, "g", "h", nodeOf(t, before, "h").Addresses[0][:strings.IndexByte(nodeOf(t, before, "h").Addresses[0], '/')])
	write()
	// a's link leads to c instead of b, and the number of what it was is another's. b's is slower. d is gone; e and f, which
	// is at the first host, are new.
	other := edited(t, pairsFile, ", d: {host: 2}", ", e: , f: {host: 1}", `"a:eth0", "b:eth0"]`, `"a:eth0", "c:eth2"], loss: 1%, overrun: allow`, "delay: 1ms", "delay: 3ms",
		`["c:eth1", "d:eth0"]`, `["c:eth1", "e:eth0"]`) + `    - {endpoints: ["f:eth0", "e:eth1"], delay: 1ms, overrun: allow}
    - {endpoints: ["f:eth1", "a:eth1"]}
`
	for range 2 {
		applied(t, l, other)
		write()
		if got, want := hostsOfLinks(t, l), "g:eth0 host1 host2, a:eth0 host1 host2, b:eth1 host1 host2, f:eth0 host1 host2"; got != want {
			t.Errorf("links that cross: %s, want %s", got, want)
		}
		reach("a", "c", "f")
		reach("e", "c", "f")
		reach("b", "c")
		applied(t, l, pairsFile)
		if got := hostsOfLinks(t, l); got != "g:eth0 host1 host2, b:eth1 host1 host2" {
			t.Errorf("links that cross afterwards: %s", got)
		}
		reach("b", "a", "c")
		reach("d", "c")
	}
	for _, name := range []string{"g", "h"} {
		if was, is := nodeOf(t, before, name), nodeOf(t, inspected(t, l), name); is.PID != was.PID {
			t.Errorf("%s has been started again", name)
		}
	}
}

// A change that would move a node is refused with its place, and nothing is changed.
func TestApplyRefusedAcrossHosts(t *testing.T) {
	l := startWith(t, parsed(t, uniqueName(t), nil, pairsFile), Options{Hosts: twoHosts})
	for _, c := range []struct{ file, want string }{
		{edited(t, pairsFile, "delay: 1ms,", "delay: 1ms, offload: off, engine: netem,"), "test.yaml:6:75: b, which is on the host host1, would have to be on one host with c, which is on host2: the link b:eth1 - c:eth0 has engine: netem"},
		{edited(t, pairsFile, "d: {host: 2}", "d: {host: 2}, e: {host: 3}"), `test.yaml:2:77: host: no host is "3", expected a number from 1 to 2 or one of host1, host2`},
		{edited(t, pairsFile, "d: {host: 2}", "d: {host: 1}"), "host of node d changes from 2 to 1"},
	} {
		standing, err := l.Standing(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		err = l.Apply(testContext(t), parsed(t, l.Info().Lab, standing.Topology, c.file), standing)
		wantCode(t, err, control.Usage)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v\nwant %s", err, c.want)
		}
		if in := inspected(t, l); in.Unfinished != "" || len(in.Nodes) != 6 {
			t.Errorf("unfinished %q, nodes: %d", in.Unfinished, len(in.Nodes))
		}
	}
}

// A link between hosts that is down lets its engines go with its ends: it carries packets again when a node has been started
// again meanwhile, and its number can be another link's.
func TestDownLinkBetweenHosts(t *testing.T) {
	l := startWith(t, parsed(t, uniqueName(t), nil, pairsFile), Options{Hosts: twoHosts})
	ctx := testContext(t)
	if err := l.Links.Down(ctx, "g:eth0"); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Nodes.Change(ctx, "h", RestartNode); err != nil {
		t.Fatal(err)
	}
	if err := l.Links.Up(ctx, "g:eth0"); err != nil {
		t.Fatal(err)
	}
	if status, out := output(t, l, "g", "ping -c 2 -i 0.01 -W 5 h"); status != 0 {
		t.Errorf("status %d, %s", status, out)
	}
	if err := l.Links.Down(ctx, "g:eth0"); err != nil {
		t.Fatal(err)
	}
	applied(t, l, edited(t, pairsFile, `    - {endpoints: ["g:eth0", "h:eth0"]}`+"\n", ""))
	applied(t, l, edited(t, pairsFile, `["g:eth0", "h:eth0"]`, `["g:eth1", "d:eth1"]`))
	if status, out := output(t, l, "g", "ping -c 2 -i 0.01 -W 5 d"); status != 0 {
		t.Errorf("status %d, %s", status, out)
	}
}
