package topology

import (
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
	"pgregory.net/rapid"
)

// variables is the environment of tests.
func variables(name string) (string, bool) {
	value, ok := map[string]string{
		"SET": "value", "NUMBER": "7", "EMPTY": "", "DOLLARS": "${SET}$$", "MAP": "{cpu: 1}", "BYTES": "\xff",
		"LARGE": strings.Repeat("1", MaxSize/64), "_a1": "low", "ENDPOINT": "b:eth0",
	}[name]
	return value, ok
}

func TestSubstitute(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "",
		"plain":                         "plain",
		"${SET}":                        "value",
		"a${SET}b${NUMBER}c":            "avalueb7c",
		"${EMPTY}":                      "",
		"${_a1}":                        "low",
		"${SET:-other}${SET:=other}":    "valuevalue",
		"${NONE:-other}${NONE:=other}":  "otherother",
		"${EMPTY:-other}${EMPTY:=}":     "other",
		"${SET:?is missing}":            "value",
		"${NONE:=${SET}-${NUMBER}}!":    "value-7!",
		"${NONE:=${EMPTY:=${NUMBER}}}}": "7}",
		"${SET:=${NONE}${NONE:?no}}":    "value", // what is not used need not be set
		"${NONE:=a$$b$c}":               "a$b$c",
		"$$":                            "$",
		"$$$$ $${SET} $SET $":           "$$ ${SET} $SET $",
		"$(id) $1 $? {SET} }":           "$(id) $1 $? {SET} }",
		"${DOLLARS}":                    "${SET}$$", // only once
	} {
		n := &yaml.Node{Kind: yaml.ScalarNode, Value: text}
		r, size := &reader{Options: Options{Variable: variables}}, 100
		if substitute(r, n, &size); len(r.errors) > 0 || n.Value != want {
			t.Errorf("%q is %q with the errors %v, want %q", text, n.Value, r.errors, want)
		}
		if strings.Contains(text, "$") && size != 100-len(want) {
			t.Errorf("%q has taken %d bytes for %q", text, 100-size, n.Value)
		}
	}
}

// Variables stand in values wherever these are, and behind anchors once.
func TestVariablesInFile(t *testing.T) {
	got, err := ParseWith(Options{Variable: variables}, "x.yaml", []byte(`
name: ${SET}
topology:
  nodes: {a: &a {cpu: "${NUMBER}"}, b: *a}
  links:
    - endpoints: ["a:${NONE:=eth0}", "${ENDPOINT}"]
      delay: ${DELAY:=1ms}
`))
	if err != nil {
		t.Fatal(err)
	}
	if l := got.Links[0]; got.Name != "value" || got.Nodes[1].CPU != 7 || l.Endpoints[1].Node != "b" || l.Directions[0].String() != "delay 1ms" {
		t.Errorf("got %+v", got)
	}
}

// Any text whose dollars are doubled is itself again.
func TestDoubledDollars(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.SampledFrom([]rune("$${}:=-?AB a"))).Draw(t, "text")
		e := expansion{rest: strings.ReplaceAll(text, "$", "$$"), left: MaxSize}
		if got, err := e.text(0, true); err != nil || got != text {
			t.Errorf("got %q, %v", got, err)
		}
	})
}

// FuzzVariables checks that expansion ends without a panic, within its bound, and
// with errors on one line.
func FuzzVariables(f *testing.F) {
	f.Add("${A:=${B:-$${C}}}${D:?x}$E")
	f.Fuzz(func(t *testing.T, text string) {
		const most = 1000
		e := expansion{rest: text, left: most, look: func(name string) (string, bool) { return strings.Repeat(name, 3), name < "N" }}
		got, err := e.text(0, true)
		if err == nil && (len(got) > most || e.left != most-len(got)) {
			t.Errorf("%d bytes, %d of %d left", len(got), e.left, most)
		}
		if err != nil && strings.ContainsAny(err.Error(), "\n\r") {
			t.Errorf("the error %q", err)
		}
	})
}
