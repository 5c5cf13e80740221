package naming

import (
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for _, test := range []struct{ word, want string }{
		{"h1", "h1"},
		{"", ""},
		{"h[1-3]", "h1 h2 h3"},
		{"h[08-11]", "h08 h09 h10 h11"},
		{"h[1,3,5-7]", "h1 h3 h5 h6 h7"},
		{"h[7,3]x", "h7x h3x"},
		{"r[1-2]-h[1-3]", "r1-h1 r1-h2 r1-h3 r2-h1 r2-h2 r2-h3"},
		{"[1-2]", "1 2"},
		{"h[0]", "h0"},
		{"h[0-2]", "h0 h1 h2"},
		{"h[12]", "h12"},
		{"leaf*", "leaf*"},
		{"h[a-c]", "h[a-c]"},
		{"h[^1]", "h[^1]"},
		{"h[1-2]:eth*", "h1:eth* h2:eth*"},
		{"[a-c][1-2]?", "[a-c]1? [a-c]2?"},
	} {
		w, err := Parse(test.word)
		if err != nil {
			t.Errorf("%s: %v", test.word, err)
			continue
		}
		if got := strings.Join(slices.Collect(w.All()), " "); got != test.want || w.String() != test.word {
			t.Errorf("%s stands for %q, want %q", test.word, got, test.want)
		}
		if pattern := strings.ContainsAny(test.want, "*?["); w.Pattern() != pattern || w.Plain() != (!pattern && test.want == test.word) {
			t.Errorf("%s: pattern %v, plain %v", test.word, w.Pattern(), w.Plain())
		}
	}
}

func TestParseWrong(t *testing.T) {
	for _, test := range []struct{ word, want string }{
		{"h[", `"h[" has no ] behind its [, expected a range such as h[1-64]`},
		{"h[1-", `"h[1-" has no ] behind its [, expected a range such as h[1-64]`},
		{"h[]", `"h[]": the range []: a number is missing, expected numbers such as [1-64] or [1,3,5-7]`},
		{"h[1-]", `"h[1-]": the range [1-]: a number is missing, expected numbers such as [1-64] or [1,3,5-7]`},
		{"h[1,,2]", `"h[1,,2]": the range [1,,2]: a number is missing, expected numbers such as [1-64] or [1,3,5-7]`},
		{"h[1-2-3]", `"h[1-2-3]": the range [1-2-3]: found "2-3", expected a number up to 2147483647`},
		{"h[5-1]", `"h[5-1]": the range [5-1] goes from 5 down to 1, expected [1-5]`},
		{"h[01-100]", `"h[01-100]": the range [01-100] goes from 2 to 3 digits, expected as many, such as [01-16]`},
		{"h[1-016]", `"h[1-016]": the range [1-016] goes from 1 to 3 digits, expected as many, such as [01-16]`},
		{"h[0-199999]", `"h[0-199999]": the range [0-199999] has more than 131072 numbers, expected fewer`},
		{"h[0-2147483647]", `"h[0-2147483647]": the range [0-2147483647] has more than 131072 numbers, expected fewer`},
		{"h[0-99999999999999999999]", `"h[0-99999999999999999999]": the range [0-99999999999999999999]: found "99999999999999999999", expected a number up to 2147483647`},
		{"h[1-400]-[1-400]", `"h[1-400]-[1-400]" stands for more than 131072 names, expected fewer`},
		{"[1][1][1][1][1][1][1][1][1]", `"[1][1][1][1][1][1][1][1][1]" has more than 8 ranges, expected fewer`},
		{"[a-]*", `"[a-]*" is no pattern of names, expected one such as leaf-*`},
		{strings.Repeat("h", mostBytes+1), `"` + strings.Repeat("h", 60) + `..." has 4097 bytes, expected at most 4096`},
	} {
		if _, err := Parse(test.word); err == nil || err.Error() != test.want {
			t.Errorf("%s: error %v\nwant %s", test.word, err, test.want)
		}
	}
}

func TestAmong(t *testing.T) {
	all := []string{"leaf2", "leaf1", "h1", "h2", "h12", "sw:eth0", "sw:eth1"}
	for _, test := range []struct{ word, want, missing string }{
		{"h1", "h1", ""},
		{"h3", "", "h3"},
		{"h[2,1]", "h2 h1", ""},
		{"h[1-3]", "", "h3"},
		{"h[12]", "h12", ""},
		{"leaf*", "leaf2 leaf1", ""},
		{"leaf[1-9]*", "leaf2 leaf1", ""},
		{"h?", "h1 h2", ""},
		{"h[^1]", "h2", ""},
		{"sw:*", "sw:eth0 sw:eth1", ""},
		{"*", strings.Join(all, " "), ""},
		{"spine*", "", "spine*"},
	} {
		w, err := Parse(test.word)
		if err != nil {
			t.Fatal(err)
		}
		found, missing := w.Among(all)
		if got := strings.Join(found, " "); got != test.want || missing != test.missing {
			t.Errorf("%s is %q, missing %q; want %q, %q", test.word, got, missing, test.want, test.missing)
		}
	}
}

func TestHas(t *testing.T) {
	for _, test := range []struct {
		word, name string
		want       bool
	}{
		{"h[1-64]", "h64", true}, {"h[1-64]", "h65", false}, {"h[1-64]", "h01", false}, {"h[01-64]", "h01", true}, {"h[01-64]", "h1", false},
		{"[1-3][1-3]x", "13x", true}, {"[1-13][1-3]", "123", true}, {"[1-13][1-3]", "4", false}, {"h[1-2]*", "h1", true}, {"h[1-2]*", "h3", false}, {"h1", "h1", true},
		{"h[1-2]", "h1x", false}, {"h[1-2]", "h", false},
	} {
		w, err := Parse(test.word)
		if err != nil {
			t.Fatal(err)
		}
		if got := w.Has(test.name); got != test.want {
			t.Errorf("%s has %s: %v, want %v", test.word, test.name, got, test.want)
		}
	}
}

func TestSplit(t *testing.T) {
	for list, want := range map[string]string{"": "", "a": "a", "a,b": "a b", "h[1,3],b": "h[1,3] b", "a,,b": "a  b", "]a,[b,c": "]a [b,c"} {
		if got := strings.Join(Split(list), " "); got != want {
			t.Errorf("%q is %q, want %q", list, got, want)
		}
	}
}

// FuzzParse holds words to what they promise: as many names as they say, in order, each
// of which they have.
func FuzzParse(f *testing.F) {
	for _, word := range []string{"h[1-64]", "r[01-04]-h[1,3,5-7]", "leaf*:*", "h[a-c]?", "[9-1]", "h[", "[^]a]"} {
		f.Add(word)
	}
	f.Fuzz(func(t *testing.T, text string) {
		w, err := Parse(text)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\r\n") {
				t.Errorf("error on several lines: %q", err)
			}
			return
		}
		if w.Plain() && (w.Count() != 1 || w.At(0) != text) {
			t.Errorf("%q is plain and stands for %q", text, w.At(0))
		}
		if w.Count() > 1000 {
			return
		}
		names := slices.Collect(w.All())
		if len(names) != w.Count() {
			t.Errorf("%q stands for %d names and has %d", text, w.Count(), len(names))
		}
		if w.Pattern() {
			return
		}
		for _, name := range names {
			if !w.Has(name) || w.Has(name+"0x") {
				t.Errorf("%q has %q: %v, and %q: %v", text, name, w.Has(name), name+"0x", w.Has(name+"0x"))
			}
		}
		if found, missing := w.Among(names); missing != "" || !slices.Equal(found, names) {
			t.Errorf("%q is %q among %q, missing %q", text, found, names, missing)
		}
	})
}
