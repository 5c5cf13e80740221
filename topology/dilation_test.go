package topology

import (
	"strings"
	"testing"
)

// The factor is that of the options, of the file, or 1.
func TestDilation(t *testing.T) {
	const nodes = "topology: {nodes: {a: , b: }, links: [{endpoints: ['a:e', 'b:e'], delay: 1ms, engine: netem}]}"
	linkem := strings.Replace(nodes, ", engine: netem", "", 1)
	for _, c := range []struct {
		file    string
		options int
		want    int
	}{
		{nodes, 0, 1}, {"dilation: 1\n" + nodes, 0, 1}, {"dilation: 40\n" + nodes, 1, 1},
		{"dilation: 40\n" + linkem, 0, 40}, {"dilation: 40\n" + linkem, 1, 1}, {linkem, 1000, 1000},
	} {
		lab, err := ParseWith(Options{Dilation: c.options}, "x.yaml", []byte(c.file))
		if err != nil {
			t.Fatal(err)
		}
		if got := lab.DilationFactor(); got != c.want || got == 1 && lab.Dilation != 0 {
			t.Errorf("with %d for %q the factor is %d, want %d", c.options, c.file, got, c.want)
		}
	}
	// The options slow netem down no more than a file does.
	_, err := ParseWith(Options{Dilation: 40}, "x.yaml", []byte(nodes))
	if want := "x.yaml:1:87: link a:e to b:e: netem knows no dilation, and the lab has one of 40, expected engine: linkem, or no dilation"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
