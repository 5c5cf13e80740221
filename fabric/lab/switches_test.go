package lab

import (
	"testing"
)

func TestSwitch(t *testing.T) {
	f := star(t, 3)
	l := start(t, f.Topology)
	in, err := l.Inspect(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", in.Nodes)
	if got := program(t, l, "h1", "echo 5001").line(t); got != "bound" {
		t.Fatal(got)
	}
	for _, a := range []string{"10.7.0.2:5001", "[fd00:7::2]:5001"} {
		p := program(t, l, "h0", "ping "+a)
		if _, err := p.stdin.WriteString("\n"); err != nil {
			t.Fatal(err)
		}
		t.Log(p.line(t))
	}
	in, err = l.Inspect(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", in.Nodes)
}
