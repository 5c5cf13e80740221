package topology

import "testing"

func TestSelector(t *testing.T) {
	labels := map[string]string{"ci": "42", "team": "storage", "empty": ""}
	for _, test := range []struct {
		texts []string
		want  bool
	}{
		{nil, true},
		{[]string{"ci=42"}, true},
		{[]string{"ci"}, true},
		{[]string{"ci", "team=storage", "ci=42"}, true},
		{[]string{"empty="}, true},
		{[]string{"ci="}, false},
		{[]string{"ci=42", "team=net"}, false},
		{[]string{"stage"}, false},
		{[]string{"stage="}, false},
	} {
		s, err := ParseSelector(test.texts)
		if err != nil || s.Selects(labels) != test.want {
			t.Errorf("%q: %v, %v", test.texts, s.Selects(labels), err)
		}
	}
	for _, b := range badLabels {
		if _, err := ParseSelector(b.texts); err == nil || err.Error() != b.want {
			t.Errorf("%q: %v, want %s", b.texts, err, b.want)
		}
	}
	if _, _, err := ParseLabel("ci"); err == nil || err.Error() != noLabel {
		t.Errorf("%v, want %s", err, noLabel)
	}
}

const noLabel = `found "ci", expected NAME=VALUE`

var badLabels = []struct {
	texts []string
	want  string
}{
	{[]string{"-x"}, `"-x" is no name of a label, expected up to 63 letters, digits and, inside, . _ - and /`},
	{[]string{""}, `"" is no name of a label, expected up to 63 letters, digits and, inside, . _ - and /`},
	{[]string{"a b=c"}, `"a b" is no name of a label, expected up to 63 letters, digits and, inside, . _ - and /`},
	{[]string{"a=b\nc"}, `"b\nc" is no value of a label, expected one line of up to 255 bytes`},
	{[]string{"a=1", "a=2"}, `label a is to be "1" and "2", and no lab has both`},
}
