package topology

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the tables of keys in docs/topology.md anew")

const referencePath = "../docs/topology.md"

// A documentedKey has what docs/topology.md says of a key.
type documentedKey struct{ name, with, text, absent string }

// A documentedTable is a table whose keys are documented under a name.
type documentedTable interface {
	documented() (name string, rows []documentedKey)
}

func (t *keyTable[M]) documented() (name string, rows []documentedKey) {
	required, _ := t.schema()["required"].([]string)
	var words []string // with which any key stands
	for _, k := range t.keys {
		for _, word := range k.with {
			if !slices.Contains(words, word) {
				words = append(words, word)
			}
		}
	}
	for _, k := range t.keys {
		if k.schema == nil { // it is refused
			continue
		}
		row := documentedKey{k.name, "", k.text(), k.absent}
		if slices.Contains(required, k.name) {
			row.absent = "needed"
		}
		others := slices.DeleteFunc(slices.Clone(words), func(word string) bool { return slices.Contains(k.with, word) })
		switch {
		case k.with == nil:
		case len(others) > 0 && len(others) < len(k.with):
			row.with = "all but `" + strings.Join(others, "`, `") + "`"
		default:
			row.with = "`" + strings.Join(k.with, "`, `") + "`"
		}
		rows = append(rows, row)
	}
	return t.noun, rows
}

// documentedKeys is all keys by their table.
func documentedKeys() map[string][]documentedKey {
	all := make(map[string][]documentedKey)
	for _, t := range tables() {
		name, rows := t.(documentedTable).documented()
		all[name] = rows
	}
	return all
}

// inMarkdown is keys as a table, with the columns that they need.
func inMarkdown(rows []documentedKey) string {
	hasWith := slices.ContainsFunc(rows, func(k documentedKey) bool { return k.with != "" })
	hasAbsent := slices.ContainsFunc(rows, func(k documentedKey) bool { return k.absent != "" })
	var b strings.Builder
	line := func(k documentedKey) {
		cells := []string{k.name}
		if hasWith {
			cells = append(cells, k.with)
		}
		cells = append(cells, k.text)
		if hasAbsent {
			cells = append(cells, k.absent)
		}
		b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
	}
	line(documentedKey{"key", "with", "value", "absent"})
	rule := 2
	for _, has := range []bool{hasWith, hasAbsent} {
		if has {
			rule++
		}
	}
	b.WriteString(strings.Repeat("|---", rule) + "|\n")
	for _, k := range rows {
		k.name = "`" + k.name + "`"
		line(k)
	}
	return b.String()
}

// section matches a table of docs/topology.md, which says of what map it is and, if not of
// all, of what keys.
var section = regexp.MustCompile(`(?s)<!-- keys of ([^:]*?)(?:: (.*?))? -->\n.*?<!-- end of keys -->`)

// TestKeysAreDocumented has every key in a table of docs/topology.md, as its own table has
// it.
func TestKeysAreDocumented(t *testing.T) {
	data, err := os.ReadFile(referencePath)
	if err != nil {
		t.Fatal(err)
	}
	keys := documentedKeys()
	found := make(map[string]bool) // table and key
	written := section.ReplaceAllStringFunc(string(data), func(old string) string {
		parts := section.FindStringSubmatch(old)
		rows := slices.Clone(keys[parts[1]])
		if rows == nil {
			t.Errorf("there is no table of %s", parts[1])
		}
		names := strings.Fields(parts[2])
		if len(names) > 0 {
			var some []documentedKey
			for _, name := range names {
				i := slices.IndexFunc(rows, func(k documentedKey) bool { return k.name == name })
				if i < 0 {
					t.Errorf("%s has no key %s", parts[1], name)
					continue
				}
				some = append(some, rows[i])
			}
			rows = some
		}
		for _, k := range rows {
			found[parts[1]+" "+k.name] = true
		}
		head, _, _ := strings.Cut(old, "\n")
		return fmt.Sprintf("%s\n\n%s\n<!-- end of keys -->", head, inMarkdown(rows))
	})
	elsewhere := map[string]string{ // what has a table with the same keys, less some
		"kind": "node", "group": "node", "node defaults": "node", "link defaults": "link", "links of a tier": "link", "fault of any": "fault",
	}
	for name, rows := range keys {
		for _, k := range rows {
			if !found[cmp.Or(elsewhere[name], name)+" "+k.name] && !found[name+" "+k.name] && !found["impairment "+k.name] && name != "fabric" { // whose table is by shape
				t.Errorf("%s has no table with the key %s of %s", referencePath, k.name, name)
			}
		}
	}
	if written == string(data) {
		return
	}
	if !*rewrite {
		t.Fatalf("%s is not what the tables of keys say: run go generate ./topology", referencePath)
	}
	if err := os.WriteFile(referencePath, []byte(written), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestEveryWordIsDocumented finds the words that values have in the reference, and the keys
// of adapters in the example that it refers to.
func TestEveryWordIsDocumented(t *testing.T) {
	reference, err := os.ReadFile(referencePath)
	if err != nil {
		t.Fatal(err)
	}
	words := slices.Concat(metricKeys(workloadMetrics()), metricKeys(linkMetrics()), Counters(), texts(operations), texts(patterns), texts(measures), texts(chaosKinds), texts(states), eventActions, checkSubjects)
	for _, word := range words {
		word = regexp.MustCompile("_prio[0-7]_").ReplaceAllString(word, "_prio3_") // which stands for all
		if !regexp.MustCompile("(`|[ {]state: )" + word + "[`:,}]").Match(reference) {
			t.Errorf("the word %s is not in docs/topology.md", word)
		}
	}
	adapters, err := os.ReadFile("../examples/adapter.ndklab.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range adapterTable().keys {
		if k.schema != nil && !strings.Contains(string(adapters), " "+k.name+": ") {
			t.Errorf("the key %s is not in the example", k.name)
		}
	}
}
