package words

import "testing"

// A command line is typed back into a shell: each of its words has to come out as it was.
func TestCommandLine(t *testing.T) {
	for word, want := range map[string]string{
		"tests/a.ndklab.yaml": "tests/a.ndklab.yaml",
		"":                    "''",
		"a b":                 "'a b'",
		"it's":                `'it'\''s'`,
		"$HOME":               "'$HOME'",
		"leaf-*":              "'leaf-*'",
		"grün":                "'grün'",
	} {
		if got := CommandLine([]string{"ndklab", word, "x=1"}); got != "ndklab "+want+" x=1" {
			t.Errorf("the line of %q is %s", word, got)
		}
	}
}
