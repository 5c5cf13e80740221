package topology

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/tools/txtar"
	"gopkg.in/yaml.v3"
	"pgregory.net/rapid"
)

// beyondSchema has the errors of the parser in files that the schema takes: see
// jsonschema.go. Each has to be found in a test.
var beyondSchema = []string{
	// Errors that depend on other values.
	`^(unknown|no) (node|kind|group|workload|link|interface) `,
	` a second time, expected`, `^a second (workload|timeline entry|snapshot|capture) `, `is (a switch|a router|outside the lab|built in|not built in|not on the link)`, `^the workload (goes from|has only) `, ` is \d+ hosts, expected one first`, `^no host is `, `is no pattern of names`, `^no link, switch or router joins `, `^\S+ is a host, expected a switch or router: other`, ` has no buffer, expected`,
	`^no address of .* is reached`, `(is|are) given to .*, which is a `, `^both ends of the link are `, `^packets from `, `^max_read_request_sge `, `^max_srq_count `, `^(dcqcn|dctcp|bdp|cnp) is given with`, `^(buffer|priorities|watchdog) is given to .* without buffer`, `^xoff stands with alpha`, `^headroom auto stands with`, `/[+.0]+", expected a number or a fraction`, `^rpg_min_rate `,
	`^the ends of the link share no subnet`, `shares no subnet with`, `^no (address|subnet) is left`, `^MTU `, ` make a loop of switches`,
	`has no address in`, `^the subnet .* has addresses of`, `^the partition separates nothing`, `^no timeline entry`, `is a node and a workload`, `^workload .* (starts by itself|is started|does not|is a program)`, `^entry `, `^no baseline: `, `is no JSON`, `^until .* is not after`, `^every .* is more than`, `expected a regular expression`,
	`waits for itself`, `^nodes wait for each other`, `lies below .*, which is a file`, `^an address is given to the switch`, `^the lab has no name`, `^convergence: the lab has no router`, `: netem knows no dilation`,
	`is no name of an external interface`, `^what nodes are given`, `^(source|file|jitter: file|jitter: no samples|no samples)\b.*(there is no file|files)`, `has more than \d+ bytes`, `^file: `,

	// Ranges of names.
	`^the shape .* has no tier`, `is odd, expected`, `" has \d+ characters, expected`, `^endpoints: interface name .* has \d+ bytes`, `has no \] behind its`, `the range \[`, `^.* stands? for `, `has a pattern, expected`, `^addresses are given to the \d+ interfaces`, ` at each node for `, ` has a range and \*`, `^with (this entry|.*) the(re)? `,

	`as a key, expected`, `after a merge key`, `^a fault matches`,
	// Ranges, and whole numbers.
	`is out of range`, `passes nothing`, `is not a whole number of`, `is too large`,
	`U\+0000`,
	// Spellings.

	// Variables.
	`variable [A-Z]+\b`, `\$\{`, `: the seed of the day$`,
	// Errors in texts that other packages read.
	`^unknown opcode|unknown opcode`, `expected a CM message`, `^filter: `, `expected a (PSN|unicast|longer|an? address)|expected an address|cannot be an interface's own|everything in its subnet|broadcast address`,
}

func compiledSchema(t testing.TB) *jsonschema.Schema {
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(JSONSchema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("topology.json", document); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("topology.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// An instance is a file as the schema sees it.
type instance struct {
	value  any
	places map[string][][2]int // line and column of each value, and of its key
}

// instanceOf is nil if the file is no YAML that is looked at.
func instanceOf(data []byte) *instance {
	r := &reader{file: "f"}
	root, ok := r.value(data) // with variables as they stand there
	if !ok || isNull(root) {
		return nil
	}
	i := &instance{places: make(map[string][][2]int)}
	i.value = i.of(r, root, nil)
	return i
}

func (i *instance) of(r *reader, n *yaml.Node, path []string) any {
	n = target(n)
	at := strings.Join(path, "/")
	i.places[at] = append(i.places[at], [2]int{n.Line, n.Column})
	switch n.Kind {
	case yaml.MappingNode:
		m := make(map[string]any)
		for _, e := range r.entries(n) {
			below := append(path[:len(path):len(path)], e.key.Value)
			m[e.key.Value] = i.of(r, e.value, below)
			key := strings.Join(below, "/")
			i.places[key] = append(i.places[key], [2]int{e.key.Line, e.key.Column})
		}
		return m
	case yaml.SequenceNode:
		list := []any{}
		for index, item := range n.Content {
			list = append(list, i.of(r, item, append(path[:len(path):len(path)], strconv.Itoa(index))))
		}
		return list
	}
	var v any
	if err := n.Decode(&v); err != nil {
		return n.Value
	}
	switch v := v.(type) {
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return n.Value
		}
		return v
	case nil, bool, int, int64, uint64, string:
		return v
	}
	return n.Value
}

// complaints returns the places where the schema finds something wrong, as paths, and
// the validator's words for people.
func (i *instance) complaints(t rapid.TB, s *jsonschema.Schema) (found map[string]bool, text error) {
	t.Helper()
	data, err := json.Marshal(i.value)
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	found = make(map[string]bool)
	add := func(path ...string) { found[strings.Join(path, "/")] = true }
	var walk func(e *jsonschema.ValidationError)
	walk = func(e *jsonschema.ValidationError) {
		where := e.InstanceLocation
		below := func(key string) { add(append(where[:len(where):len(where)], key)...) }
		switch k := e.ErrorKind.(type) {
		case *kind.AnyOf, *kind.OneOf, *kind.Not: // which may be wrong as a whole
			add(where...)
		case *kind.AdditionalProperties:
			for _, p := range k.Properties {
				below(p)
			}
		case *kind.DependentRequired:
			below(k.Prop)
		case *kind.FalseSchema, *kind.MinItems, *kind.MaxItems: // of which the parser may say that it is the map around that is wrong
			add(where...)
			add(where[:len(where)-1]...)
		case *kind.PropertyNames:
			// The validator does not tell of which map for certain.
			for path := range i.places {
				if path == k.Property || strings.HasSuffix(path, "/"+k.Property) {
					add(path)
				}
			}
			return
		default:
			if len(e.Causes) == 0 {
				add(where...)
			}
		}
		for _, c := range e.Causes {
			walk(c)
		}
	}
	var invalid *jsonschema.ValidationError
	if err := s.Validate(value); errors.As(err, &invalid) {
		walk(invalid)
	} else if err != nil {
		t.Fatal(err)
	}
	return found, invalidOrNil(invalid)
}

func invalidOrNil(err *jsonschema.ValidationError) error {
	if err == nil {
		return nil
	}
	return err
}

// near reports whether a path is of a value at a place, of its key, or of what is
// around or in the map that it is in.
func (i *instance) near(path string, place [2]int) bool {
	path = path[:max(0, strings.LastIndex(path, "/"))]
	for other, places := range i.places {
		if slices.Contains(places, place) && (other == path || other == "" || path == "" || strings.HasPrefix(other, path+"/") || strings.HasPrefix(path, other+"/")) {
			return true
		}
	}
	return false
}

// used is which differences a test has needed.
var used = make(map[string]bool)

// compiled are regular expressions by their text.
var compiled sync.Map

func matches(pattern, text string) bool {
	re, ok := compiled.Load(pattern)
	if !ok {
		re, _ = compiled.LoadOrStore(pattern, regexp.MustCompile("(?s)"+pattern)) // names may have more than a line
	}
	return re.(*regexp.Regexp).MatchString(text)
}

// beyond reports whether an error is one that the schema cannot find.
func beyond(message string) bool {
	for _, pattern := range beyondSchema {
		if matches(pattern, message) {
			used[pattern] = true
			return true
		}
	}
	return false
}

// sameVerdict wants the schema to take what the parser takes, and to find what the
// parser finds where it does, but for what is beyond it.
func sameVerdict(t testing.TB, s *jsonschema.Schema, name string, data []byte) {
	t.Helper()
	i := instanceOf(data)
	if i == nil {
		return
	}
	file := filepath.Base(name) // which names the lab
	complaints, text := i.complaints(t, s)
	_, err := ParseWith(Options{Read: readSamples}, file, data)
	var list ErrorList
	if err == nil {
		if len(complaints) > 0 {
			t.Errorf("%s: the parser takes it, the schema does not: %v\n%s", name, text, data)
		}
		return
	}
	if !errors.As(err, &list) {
		t.Fatal(err)
	}
	found := make(map[[2]int]bool)
	for path := range complaints {
		for _, place := range i.places[path] {
			found[place] = true
		}
		if !slices.ContainsFunc(list, func(e Error) bool { return e.File != file || i.near(path, [2]int{e.Line, e.Column}) }) {
			t.Errorf("%s: the schema complains of %s, the parser says only %v", name, path, list)
		}
	}
	for _, e := range list {
		if e.File == file && !found[[2]int{e.Line, e.Column}] && !beyond(e.Message) {
			t.Errorf("%s: the schema does not find what the parser says: %v", name, e)
		}
	}
}

// TestSchemaVerdicts has all files of the repository.
func TestSchemaVerdicts(t *testing.T) {
	s := compiledSchema(t)
	for path, archive := range badCases(t) {
		for i := 0; i+1 < len(archive.Files); i += 2 {
			sameVerdict(t, s, filepath.Base(path)+"/"+archive.Files[i].Name, archive.Files[i].Data)
		}
	}
	for _, b := range badBytes {
		if len(b.data) < 20_000 { // others are about size
			sameVerdict(t, s, b.name, b.data)
		}
	}
	good := 0
	take := func(name string, data []byte) {
		// $LAB is what scripts have in the place of a name.
		data = bytes.ReplaceAll(data, []byte("$LAB"), []byte("lab"))
		if _, err := ParseWith(Options{Read: readSamples}, filepath.Base(name), data); err == nil {
			good++
			sameVerdict(t, s, name, data)
		}
	}
	err := filepath.WalkDir("..", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		switch {
		case strings.HasSuffix(path, ".yaml"):
			take(path, data)
		case strings.HasSuffix(path, ".txt") && strings.Contains(path, "script"):
			for _, f := range txtar.Parse(data).Files {
				if strings.HasSuffix(f.Name, ".yaml") {
					take(path+"/"+f.Name, f.Data)
				}
			}
		case strings.HasSuffix(path, "_test.go") && bytes.Contains(data, []byte("topology:")):
			file, err := parser.ParseFile(token.NewFileSet(), path, data, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
					if text, err := strconv.Unquote(l.Value); err == nil && strings.Contains(text, "topology:") {
						take(path, []byte(text))
					}
				}
				return true
			})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if good < 25 {
		t.Errorf("only %d files that are right", good)
	}
	for _, pattern := range beyondSchema {
		if !used[pattern] {
			t.Errorf("no test needs the difference %s", pattern)
		}
	}
}

// TestEveryMap has testdata/everything.yaml have every map that a file can have.
func TestEveryMap(t *testing.T) {
	seen := make(map[string]bool)
	r := &reader{file: "f.yaml", Options: Options{Read: readSamples}, seen: func(what string) { seen[what] = true }}
	everything, err := os.ReadFile("testdata/everything.yaml")
	if err != nil {
		t.Fatal(err)
	}
	r.resolve(labTable().read(r, r.expand(r.document(everything))))
	if len(r.errors) > 0 {
		t.Fatal(r.errors)
	}
	known := map[string]bool{}
	for _, of := range tables() {
		what := of.title()
		if known[what] = true; !seen[what] && what != "settings" { // which are the command line's
			t.Errorf("testdata/everything.yaml has no %s", what)
		}
	}
	for what := range seen {
		if !known[what] {
			t.Errorf("%s is not among the tables", what)
		}
	}
}

// TestSchemaIsPlain has the schema use no pattern that editors could not read: their
// regular expressions are those of ECMAScript.
func TestSchemaIsPlain(t *testing.T) {
	for _, unknown := range []string{`(?s`, `(?i`, `(?P`, `\\A`, `\\z`, `[[:`, `\\pL`, `\\Q`} {
		if bytes.Contains(JSONSchema(), []byte(unknown)) {
			t.Errorf("the schema has %s", unknown)
		}
	}
	if !bytes.Contains(JSONSchema(), []byte(`"$schema": "https://json-schema.org/draft/2020-12/schema"`)) {
		t.Error("the schema does not say of what draft it is")
	}
}

// TestSchemaVariables has variables in the place of values of every sort.
func TestSchemaVariables(t *testing.T) {
	const text = `
name: ${NAME}
seed: ${SEED:-5}
topology:
  nodes:
    a: {cpu: "${CPU:=0.5}", memory: "${MEMORY:-256MiB}", restart: "${RESTART:-always}", adapter: {vendor_id: "${ID:-0x5}", pend: "${PEND:-true}"}}
    b: {healthcheck: {command: "${COMMAND:-true}", retries: "${RETRIES:-3}"}}
  links:
    - {endpoints: ["a:${E:-e}", "b:e"], rate: "${RATE:-10gbit}", engine: "${ENGINE:-linkem}", loss: "${LOSS:-none}", corrupt: {probability: "${P:-1%}", bits: "${BITS:-3}"}}
checks: []
`
	if _, err := ParseWith(Options{Variable: func(name string) (string, bool) {
		if name == "NAME" {
			return "x", true
		}
		return "", false
	}}, "f.yaml", []byte(text)); err != nil {
		t.Fatal(err)
	}
	if _, err := instanceOf([]byte(text)).complaints(t, compiledSchema(t)); err != nil {
		t.Error(err)
	}
}
