package topology

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestEveryKeyIsDocumented finds the keys of the schema in the source, and each in
// the reference, where those of adapters are in the example that it refers to.
func TestEveryKeyIsDocumented(t *testing.T) {
	reference, err := os.ReadFile("../docs/topology.md")
	if err != nil {
		t.Fatal(err)
	}
	adapters, err := os.ReadFile("../examples/adapter.ndklab.yaml")
	if err != nil {
		t.Fatal(err)
	}
	keys := schemaKeys(t)
	if len(keys) < 70 {
		t.Errorf("found only %d keys in the source", len(keys))
	}
	for key, source := range keys {
		if key == "rdma_technology" { // it is refused
			continue
		}
		if strings.Contains(string(reference), "`"+key+"`") || source == "adapter.go" && strings.Contains(string(adapters), " "+key+": ") {
			continue
		}
		t.Errorf("%s: the key %s is not in docs/topology.md", source, key)
	}
	words := slices.Concat(metricKeys(workloadMetrics()), metricKeys(linkMetrics()), Counters(), texts(operations), texts(patterns), texts(measures), texts(chaosKinds), texts(states), eventActions, checkSubjects)
	for _, word := range words {
		if !regexp.MustCompile("(`|[ {]state: )" + word + "[`:,}]").Match(reference) {
			t.Errorf("the word %s is not in docs/topology.md", word)
		}
	}
}

// schemaKeys is every key that a field of a map is made with, and the file that
// has it.
func schemaKeys(t *testing.T) map[string]string {
	makers := map[string]bool{"one": true, "list": true, "names": true, "setting": true, "words": true, "sets": true}
	keys := make(map[string]string)
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range sources {
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), source, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		// add takes the first that is a text of what a field is made of.
		add := func(of []ast.Expr) {
			for _, e := range of {
				if l, ok := e.(*ast.BasicLit); ok && l.Kind == token.STRING {
					key, _ := strconv.Unquote(l.Value)
					keys[key] = source
					return
				}
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if f, ok := n.Fun.(*ast.Ident); ok && makers[f.Name] {
					add(n.Args)
				}
			case *ast.CompositeLit:
				if f, ok := n.Type.(*ast.Ident); ok && f.Name == "field" {
					add(n.Elts)
				}
				// The elements of []field{{"key", ...}} have no type of their own.
				if a, ok := n.Type.(*ast.ArrayType); ok {
					if f, ok := a.Elt.(*ast.Ident); ok && f.Name == "field" {
						for _, e := range n.Elts {
							if inner, ok := e.(*ast.CompositeLit); ok {
								add(inner.Elts)
							}
						}
					}
				}
			}
			return true
		})
	}
	return keys
}
