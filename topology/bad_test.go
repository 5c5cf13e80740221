package topology

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "write what Parse says into testdata/bad-*.txt; read the difference")

// badCases is testdata/bad-*.txt by path.
func badCases(t *testing.T) map[string]*txtar.Archive {
	paths, err := filepath.Glob("testdata/bad-*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no test data: %v", err)
	}
	archives := make(map[string]*txtar.Archive)
	for _, path := range paths {
		a, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		archives[path] = a
	}
	return archives
}

func TestBad(t *testing.T) {
	for path, archive := range badCases(t) {
		for i := 0; i+1 < len(archive.Files); i += 2 {
			file, want := archive.Files[i], &archive.Files[i+1]
			if want.Name != file.Name+".want" {
				t.Fatalf("%s: %s is followed by %s", path, file.Name, want.Name)
			}
			t.Run(file.Name, func(t *testing.T) {
				got := fmt.Sprintln(parseBad(t, file.Name, file.Data))
				if *update {
					want.Data = []byte(got)
					return
				}
				if diff := cmp.Diff(string(want.Data), got); diff != "" {
					t.Errorf("errors (-want +got):\n%s", diff)
				}
			})
		}
		if *update {
			if err := os.WriteFile(path, txtar.Format(archive), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// parseBad returns the errors of Parse for a bad file, after checking what
// every error has.
func parseBad(t *testing.T, name string, data []byte) ErrorList {
	t.Helper()
	topology, err := ParseWith(Options{Read: readSamples, Variable: variables}, name, data)
	var list ErrorList
	if !errors.As(err, &list) || len(list) == 0 {
		t.Fatalf("Parse returned error %v, want an ErrorList", err)
	}
	if topology != nil {
		t.Error("Parse returned a Topology as well")
	}
	last := Error{}
	for _, e := range list {
		if e.Line < 1 || e.Column < 1 || e.Message == "" || strings.ContainsAny(e.Message, "\n\r") {
			t.Errorf("error without place or text on one line: %#v", e)
		}
		if e.File == last.File && (e.Line < last.Line || e.Line == last.Line && e.Column < last.Column) || e.File == name && last.File != name && last.File != "" {
			t.Errorf("%v comes after %v", e, last)
		}
		last = e
	}
	return list
}

// sampleFiles has the files that topologies refer to in tests.
var sampleFiles = map[string]string{
	"report.json":  "{}",
	"junk.txt":     strings.Repeat("bad\n", 1000),
	"good.txt":     "# of a day\n1ms\n  -50us # early\n\n0ms\r\n",
	"dir/good.txt": "2ms",
	"bad.txt":      "1ms\n  2 # no unit\nfast\n61s\n\xff\n",
	"empty.txt":    "# nothing\n",
	"huge.txt":     strings.Repeat("x", maxReferred),
	"beyond.txt":   strings.Repeat("x", maxReferred+1),
	"large.txt":    strings.Repeat("1ms\n", maxSampleSize/4+1),
	"most.txt":     strings.Repeat("1us\n", maxSamples-1) + "-1s\n",
	"more.txt":     strings.Repeat("1us\n", maxSamples-1) + "-999ms\n",
	"many.txt":     strings.Repeat("1s\n", maxSamples+1),
}

// readSamples is a ReadFile of sampleFiles. Names that end in .n count as good.txt.
func readSamples(path string) ([]byte, error) {
	path = strings.TrimPrefix(path, "some/where/")
	if strings.HasSuffix(path, ".n") {
		path = "good.txt"
	}
	text, ok := sampleFiles[path]
	if !ok {
		return nil, fmt.Errorf("there is no file %s", path)
	}
	return []byte(text), nil
}

// badBytes are files that a text file cannot hold.
var badBytes = []struct {
	name string
	data []byte
	want string
}{
	{"no bytes", nil, `f.yaml:1:1: the file is empty, expected a lab: a map with the key topology`},
	{"not UTF-8", []byte("name: x\nseed: \xff\n"), `f.yaml:2:7: byte 0xff is not UTF-8, expected UTF-8 text`},
	{"UTF-16", []byte("\xff\xfen\x00"), `f.yaml:1:1: byte 0xff is not UTF-8, expected UTF-8 text`},
	{"control character", []byte("name: é\x01"), `f.yaml:1:8: control character U+0001, expected text`},
	{"control character above ASCII", []byte("a\n\u0080"), `f.yaml:2:1: control character U+0080, expected text`},
	{"too many sample files", manySampleFiles(), `f.yaml:67:57: file: one more than 64 files of samples, expected no more`},
	{"too many routes", []byte(routerRing(1700)), `f.yaml:2:10: 1700 nodes with routes to 6800 subnets are too many, expected switches in the place of some routers`},
	{"too many ports", []byte(star(maxPorts + 1)), "f.yaml:1027:33: switch s has more than 1023 links, expected fewer: a second switch, joined to it by a link, takes the others"},
	{"too large", bytes.Repeat([]byte("#"), MaxSize+1), `f.yaml:1:1: the file has more than 16777216 bytes (16 MiB), expected no more`},
	{"long wait", []byte("topology: {nodes: {a: , b: {wait_for: [&w {node: a, stage: created}" + strings.Repeat(",*w", maxWaits) + "]}}}\n"),
		"f.yaml:1:39: wait_for: 1025 nodes to wait for, expected at most 1024"},
	{"long command", []byte("topology: {nodes: {a: {exec: [" + strings.Repeat("x", maxArgument+1) + "]}}}\n"),
		"f.yaml:1:31: exec: 131072 bytes are more than the kernel passes to a process, expected at most 131071"},
	{"long variable", []byte("topology: {nodes: {a: {env: {ABCD: " + strings.Repeat("x", maxArgument-4) + "}}}}\n"),
		"f.yaml:1:36: env: 131067 bytes are more than the kernel passes to a process, expected at most 131066"},
	{"long path", []byte("topology: {nodes: {a: {files: {? " + strings.Repeat("/x", 2048) + " : {content: x}}}}}\n"),
		`f.yaml:1:34: files: "/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x..." is no path that the kernel takes, expected at most 4095 bytes without U+0000`},
	{"much for each node", []byte("topology:\n  defaults: {node: {files: {/etc/a: {source: huge.txt}}}}\n  nodes: {" + numbered(9, "n%d: , ") + "}\n"),
		"f.yaml:3:53: what nodes are given, each by itself, takes more than 33554432 bytes (32 MiB) with this one, expected smaller files or fewer entries"},
	{"a long cycle", []byte("topology: {nodes: {" + waitRing(20) + "}}\n"),
		"f.yaml:1:937: nodes wait for each other: n0 -> n1 -> n2 -> n3 -> n4 -> n5 -> n6 -> n7 -> n8 -> n9 -> n10 -> n11 -> n12 -> n13 -> n14 -> n15 -> ... (20 in all) -> n0, expected one of them not to"},
	{"large variables", []byte("topology: {nodes: {a: }}\nname: x\nseed: '" + strings.Repeat("${LARGE}", 65) + "'"),
		"f.yaml:3:7: the values of variables make the file larger than 16777216 bytes (16 MiB), expected no more"},
	{"many targets", []byte("topology: {nodes: {a: , b: }, links: [{endpoints: ['a:x[1-300]', 'b:x[1-300]']}]}\ntimeline:\n" + strings.Repeat("- {at: 1s, link: 'a:*', up: true}\n", 438)),
		`f.yaml:439:3: with all that this stands for the list has more than 131072 entries, expected up to that`},
	{"long list", []byte("topology: {nodes: {a: }}\nworkloads: [&w {}" + strings.Repeat(",*w", maxItems) + "]\n"),
		"f.yaml:2:12: the list has 131073 items, expected up to 131072"},
}

// numbered is the format with each number below n.
func numbered(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// waitRing is nodes that each wait for the next.
func waitRing(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "n%d: {wait_for: [{node: n%d, stage: healthy}]}, ", i, (i+1)%n)
	}
	return b.String()
}

// noSources is the error of a file's source where files are not read.
const noSources = "source: files are not read here, expected content: and the text"

// noBaselines is the error of a baseline where files are not read.
const noBaselines = "files are not read here, expected no baseline"

// noFiles is the error of jitter={file: good.txt} where files are not read.
const noFiles = "jitter: file: files are not read here, expected samples: and a list"

// manySampleFiles is a topology that refers to one file of samples more than it
// may, and to one of them twice.
func manySampleFiles() []byte {
	var b strings.Builder
	b.WriteString("topology: {nodes: {a: , b: }, links: [{endpoints: [a:e, b:e]}]}\ntimeline:\n")
	for i := range maxSampleFiles {
		fmt.Fprintf(&b, "  - {at: 1s, link: a:e, set: {delay: 1s, jitter: {file: %d.n}}}\n", i)
	}
	b.WriteString("  - {at: 1s, link: a:e, set: {delay: 1s, jitter: {file: x.n}}}\n  - {at: 1s, link: a:e, set: {jitter: {file: 0.n}}}\n")
	return []byte(b.String())
}

// routerRing is a file of routers that are each joined to the next two.
func routerRing(routers int) string {
	var nodes, links strings.Builder
	for i := range routers {
		fmt.Fprintf(&nodes, "r%d: {kind: router}, ", i)
		fmt.Fprintf(&links, "    - endpoints: [r%d:a, r%d:b]\n    - endpoints: [r%d:c, r%d:d]\n", i, (i+1)%routers, i, (i+2)%routers)
	}
	return "topology:\n  nodes: {" + nodes.String() + "}\n  links:\n" + links.String()
}

func TestBadBytes(t *testing.T) {
	for _, test := range badBytes {
		t.Run(test.name, func(t *testing.T) {
			if got := parseBad(t, "f.yaml", test.data).Error(); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// TestEveryMessageIsTested finds the formats of messages in the source, and for
// each a message that a test above expects.
func TestEveryMessageIsTested(t *testing.T) {
	var said strings.Builder
	for _, archive := range badCases(t) {
		for i := 1; i < len(archive.Files); i += 2 {
			said.Write(archive.Files[i].Data)
		}
	}
	for _, b := range badBytes {
		said.WriteString(b.want + "\n")
	}
	for _, b := range badSettings {
		said.WriteString(b.want + "\n")
	}
	for _, b := range badLabels {
		said.WriteString(b.want + "\n")
	}
	said.WriteString(noLabel + "\n")
	for _, b := range badOptions {
		said.WriteString(b.want + "\n")
	}
	for _, b := range manyPartners {
		said.WriteString(b.want + "\n")
	}
	for _, want := range badPaths {
		said.WriteString(want + "\n")
	}
	for _, want := range badWorkloads {
		said.WriteString(want + "\n")
	}
	said.WriteString(noFiles + noSources + noBaselines)
	untestable := map[string]bool{
		"%s":           true, // these pass on another message
		"%v":           true,
		"yaml: %v":     true, // a panic inside yaml.v3, of which none is known
		"not YAML: %v": true, // an error of yaml.v3 in a form of which none is known
	}
	verb := regexp.MustCompile(`%[a-z0-9]*[a-zA-Z]`)
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, source := range sources {
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), source, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			selector, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !strings.Contains(" errorf errorAt valueError Errorf New ", " "+selector.Sel.Name+" ") {
				return true
			}
			for _, argument := range call.Args {
				literal, ok := argument.(*ast.BasicLit)
				if !ok || literal.Kind != token.STRING {
					continue
				}
				format, err := strconv.Unquote(literal.Value)
				if err != nil || untestable[format] {
					break
				}
				pattern := ""
				for i, part := range verb.Split(strings.ReplaceAll(format, "%%", "%"), -1) {
					if i > 0 {
						pattern += ".*"
					}
					pattern += regexp.QuoteMeta(part)
				}
				found++
				if !regexp.MustCompile(pattern).MatchString(said.String()) {
					t.Errorf("%s: no test expects %q", source, format)
				}
				break
			}
			return true
		})
	}
	if found < 50 {
		t.Errorf("found only %d messages in the source", found)
	}
}

// TestErrorOrder has errors in a topology and in two files that it refers to.
func TestErrorOrder(t *testing.T) {
	list := ErrorList{{"b.txt", 1, 1, "x"}, {"t.yaml", 9, 1, "x"}, {"a.txt", 2, 1, "x"}, {"t.yaml", 3, 2, "x"}, {"t.yaml", 3, 1, "x"}, {"a.txt", 2, 1, "x"}, {"z.yaml", 1, 1, "x"}}
	want := ErrorList{{"t.yaml", 3, 1, "x"}, {"t.yaml", 3, 2, "x"}, {"t.yaml", 9, 1, "x"}, {"a.txt", 2, 1, "x"}, {"b.txt", 1, 1, "x"}, {"z.yaml", 1, 1, "x"}}
	if diff := cmp.Diff(want, list.ordered("t.yaml")); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
}

func TestErrorListIsCut(t *testing.T) {
	var list ErrorList
	for i := range 52 {
		list = append(list, Error{"f.yaml", i + 1, 1, "wrong"})
	}
	lines := strings.Split(list.Error(), "\n")
	if len(lines) != 51 || lines[49] != "f.yaml:50:1: wrong" || lines[50] != "and 2 more" {
		t.Errorf("%d lines, ending in %q", len(lines), lines[len(lines)-2:])
	}
}

// hostileSize is enough for what is quadratic in our code to be felt, and for
// what is worse to exceed the test's time limit.
const hostileSize = 256 << 10

// TestHostileFiles checks that Parse comes to an end with a bearable message.
func TestHostileFiles(t *testing.T) {
	fill := func(prefix, part, suffix string) []byte {
		return []byte(prefix + strings.Repeat(part, (hostileSize-len(prefix)-len(suffix))/len(part)) + suffix)
	}
	tests := []struct {
		name string
		data []byte
	}{
		{"opening brackets", fill("", "[", "")},
		{"opening braces", fill("", "{a: ", "")},
		{"dashes", fill("", "- ", "")},
		{"indents", fill("", "- - -\n", "")},
		{"list of nothing", fill("topology: {nodes: {a: }}\nworkloads: [", ",x", "]")},
		{"unknown keys", fill("topology: {nodes: {a: ", "}, bb: {nme: 1", "}}")},
		{"the same key", fill("", "name: x\n", "")},
		{"one long key", fill("", "x", ": 1")},
		{"unknown nodes", fill("topology:\n  nodes: {a: , b: }\n  links:\n", "  - {endpoints: [c:e0, d:e0]}\n", "")},
		{"list of aliases", fill("topology: {nodes: {a: &a {cpu: 1}}, links: [&l {endpoints: [a:e, a:f]}", ",*l", "]}")},
		{"wide aliases", fill("topology: {links: [&l {endpoints: [&e {addresses: [&x 10.0.0.1/24"+strings.Repeat(",*x", 500)+"]}"+strings.Repeat(",*e", 500)+"]}", ",*l", "]}")},
		{"merges", fill("version: 3\ntopology: {nodes: {a: &a {cpu: 1}, b: {<<: [*a", ",*a", "]}}}")},
		{"list of faults", fill("topology: {nodes: {a: , b: }, links: [{endpoints: [a:e, b:e], faults: [&f {match: {opcode: [ack, cnp]}, action: drop}", ",*f", "]}]}")},
		{"events with samples", fill("topology: {nodes: {a: , b: }, links: [{endpoints: [a:e, b:e], delay: 1s}]}\ntimeline:\n",
			"- {at: 1s, link: a:e, set: {jitter: {file: most.txt}}}\n- {at: 1s, link: a:e, set: {jitter: {file: more.txt}}}\n", "- {at: 1s, link: a:e, set: {delay: 0ms}}\n")},
		{"partitions", fill("topology: {nodes: {a: , b: }, links: [{endpoints: [a:e, b:e]}]}\ntimeline:\n", "- {at: 1s, partition: [[a]]}\n", "- {at: 1s, partition: [[z]]}\n")},
		{"variables of all nodes", []byte("topology:\n  defaults: {node: {env: {" + numbered(2000, "V%d: x, ") + "}}}\n  nodes: {" + numbered(10000, "n%d: {env: {W: x}}, ") + "}\n")},
		{"waits of all nodes", []byte("topology:\n  defaults: {node: {wait_for: [&w {node: n1, stage: healthy}" + strings.Repeat(",*w", maxWaits-1) + "]}}\n  nodes: {" + numbered(10000, "n%d: , ") + "}\n")},
		{"comments", fill("", "#\n", "")},
		{"comments inside", fill("a:\n", " # c\n", " b: 1\n")},
		{"comments between", fill("", "a: # c\n # d\n", "")},
		{"anchors", fill("[", "&a a,", "]")},
		{"colons", fill("", ": ", "")},
		{"questions", fill("", "? ", "")},
		{"quotes", fill("", `"`, "")},
		{"backslashes", fill(`"`, `\\`, `"`)},
		{"spaces", fill("", " ", "x")},
		{"newlines", fill("a: |\n", "\n", " x")},
		{"documents", fill("", "---\n", "")},
		{"tags", fill("", "!!str ", "x")},
		{"directives", fill("", "%A b\n", "")},
		{"percent", fill("name: ", "%41", "")},
		{"dollars", fill("name: ", "$$", "")},
		{"variables", fill("name: ", "${SET}", "")},
		{"defaults", fill("name: ", "${", "")},
		{"nested defaults", fill("name: ", "${NONE:=", "x}")},
		{"unused defaults", fill("name: ", "${SET:=", "x}")},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if _, err := ParseWith(Options{Read: readSamples, Variable: variables}, "lab.yaml", test.data); err == nil {
				t.Error("Parse took it")
			} else if len(err.Error()) > 1000*shownErrors {
				t.Errorf("a message of %d bytes", len(err.Error()))
			}
		})
	}
}
