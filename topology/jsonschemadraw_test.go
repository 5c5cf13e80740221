package topology

import (
	"encoding/json"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// beyondDraws has the parser's errors about files that are drawn from the schema, too. A
// pattern of names is shorter than those it stands for: "e[0000]*" has eight characters,
// and names interfaces of five and more.
var beyondDraws = []string{
	`has too many digits`, `found "0[xob0-9].*expected a whole number`, `is negative`, `^mode: found "\d+"`, `found "[0-9]{20,}.*", expected ==`, `an empty command`, // of space that is not ASCII
	`([0-9.]+(ns|us|µs|μs|ms|s|m|h)?)+(\.\.\.)?"? has no known unit, expected a duration`,
	`interface name ".*" has \d+ bytes`,
}

// A drawer makes values that a schema takes.
type drawer struct {
	defs map[string]schema
}

func (d drawer) draw(t *rapid.T, s schema) any {
	if ref, ok := s["$ref"].(string); ok {
		return d.draw(t, d.defs[strings.TrimPrefix(ref, "#/$defs/")])
	}
	if k, ok := s["properties"].(map[string]schema); ok {
		return d.object(t, s, k)
	}
	if all, ok := s["anyOf"].([]schema); ok {
		all = slices.DeleteFunc(slices.Clone(all), func(s schema) bool { return s["pattern"] == variable }) // none is set
		return d.draw(t, rapid.SampledFrom(all).Draw(t, "one of"))
	}
	switch enum := s["enum"].(type) {
	case []string:
		return rapid.SampledFrom(enum).Draw(t, "word")
	case []any:
		return rapid.SampledFrom(enum).Draw(t, "value")
	}
	if s["const"] != nil {
		return s["const"]
	}
	kinds, ok := s["type"].([]string)
	if !ok {
		kinds = []string{s["type"].(string)}
	}
	switch rapid.SampledFrom(kinds).Draw(t, "type") {
	case "null":
		return nil
	case "boolean":
		return rapid.Bool().Draw(t, "bool")
	case "integer", "number":
		least, most := bound64(s["minimum"], 0), bound64(s["maximum"], 1e6)
		return rapid.Uint64Range(least, most).Draw(t, "number")
	case "array":
		items := []any{}
		least, _ := s["minItems"].(int)
		for range rapid.IntRange(least, min(least+2, int(bound64(s["maxItems"], 9)))).Draw(t, "items") {
			if is := d.draw(t, s["items"].(schema)); s["uniqueItems"] == nil || !slices.Contains(items, is) {
				items = append(items, is)
			}
		}
		return items
	case "object": // of names
		m := map[string]any{}
		names := s["propertyNames"].(schema)
		least, _ := s["minProperties"].(int)
		for entries := rapid.IntRange(least, least+2).Draw(t, "entries"); len(m) < entries; {
			is := names
			if all, ok := names["anyOf"].([]schema); ok {
				is = rapid.SampledFrom(all).Draw(t, "name")
			}
			m[d.text(t, is)] = d.draw(t, s["additionalProperties"].(schema))
		}
		return m
	}
	return d.text(t, s)
}

// text is a text of a pattern, or one of a few where there is none.
func (d drawer) text(t *rapid.T, s schema) string {
	pattern, ok := s["pattern"].(string)
	if !ok {
		return rapid.SampledFrom([]string{"a", "b", "a:eth0", "5", "host", "x y", "/x"}).Draw(t, "text")
	}
	return rapid.StringMatching(strings.TrimSuffix(pattern, "|"+variable)).Filter(func(text string) bool {
		if strings.Contains(text, "\u0085") { // YAML 1.1 reads this line break, which JSON does not escape, as a space
			return false
		}
		if most, ok := s["maxLength"].(int); ok && len(text) > most {
			return false
		}
		not, _ := s["not"].(schema)
		except, ok := not["pattern"].(string)
		return text != not["const"] && (!ok || !matches(except, text))
	}).Draw(t, "matching")
}

func bound64(of any, absent uint64) uint64 {
	switch n := of.(type) {
	case int:
		return uint64(n)
	case float64:
		return uint64(math.Ceil(n))
	case uint64:
		return n
	}
	return absent
}

// object is a map with the keys that it needs and some others.
func (d drawer) object(t *rapid.T, s schema, k map[string]schema) any {
	m := map[string]any{}
	instead := map[string]schema{} // what rules have keys be in place of k
	give := func(key string) {
		if _, has := m[key]; has {
			return
		}
		is := k[key]
		if instead[key] != nil {
			is = instead[key]
		}
		m[key] = d.draw(t, is)
	}
	barred := map[string]bool{}
	// need gives what a schema requires, and bars what it excludes.
	need := func(s schema) {
		required, _ := s["required"].([]string)
		for _, key := range required {
			give(key)
		}
		choice, exclusive := s["oneOf"].([]schema)
		if !exclusive {
			choice, _ = s["anyOf"].([]schema)
		}
		if choice == nil {
			return
		}
		for _, c := range choice {
			barred[c["required"].([]string)[0]] = exclusive
		}
		give(rapid.SampledFrom(choice).Draw(t, "choice")["required"].([]string)[0])
	}
	need(s)
	rules, _ := s["allOf"].([]schema)
	if s["if"] != nil {
		rules = append(rules, s)
	}
	for _, rule := range rules { // first all that they depend on
		if rule["if"] == nil {
			need(rule)
			continue
		}
		for _, key := range decides(rule["if"].(schema)) {
			if !barred[key] && rapid.Bool().Draw(t, key) {
				give(key)
			}
			barred[key] = true
		}
	}
	for _, rule := range rules {
		then, ok := rule["then"].(schema)
		if rule["if"] == nil {
			continue
		}
		if !holds(rule["if"].(schema), m) {
			then, ok = rule["else"].(schema)
		}
		if !ok {
			continue
		}
		properties, _ := then["properties"].(schema)
		for _, key := range slices.Sorted(maps.Keys(properties)) {
			if other, ok := properties[key].(schema); ok {
				if k[key]["propertyNames"] != nil { // of which the rule has a part only
					both := maps.Clone(k[key])
					maps.Copy(both, other)
					other = both
				}
				instead[key] = other
				continue
			}
			barred[key] = true
			delete(m, key)
		}
		need(then)
	}
	for _, key := range slices.Sorted(maps.Keys(k)) {
		if !barred[key] && rapid.IntRange(0, 3).Draw(t, key) == 0 {
			give(key)
		}
	}
	if dependent, ok := s["dependentRequired"].(schema); ok {
		for key, needs := range dependent {
			need := needs.([]string)[0]
			_, has := m[key]
			if _, met := m[need]; has && !met && barred[need] {
				delete(m, key)
			} else if has {
				give(need)
			}
		}
	}
	if least, _ := s["minProperties"].(int); len(m) < least {
		give("delay")
	}
	return m
}

// decides is the keys that a condition depends on.
func decides(condition schema) []string {
	some := map[string]bool{}
	properties, _ := condition["properties"].(schema)
	for key := range properties {
		some[key] = true
	}
	required, _ := condition["required"].([]string)
	for _, key := range required {
		some[key] = true
	}
	any, _ := condition["anyOf"].([]schema)
	for _, c := range any {
		for _, key := range decides(c) {
			some[key] = true
		}
	}
	if not, ok := condition["not"].(schema); ok {
		for _, key := range decides(not) {
			some[key] = true
		}
	}
	return slices.Sorted(maps.Keys(some))
}

// holds reports whether a map meets a condition.
func holds(condition schema, m map[string]any) bool {
	properties, _ := condition["properties"].(schema)
	for key, of := range properties {
		value, has := m[key]
		is := of.(schema)
		if words, ok := is["enum"].([]string); has && ok && !slices.ContainsFunc(words, func(w string) bool { return value == w }) {
			return false
		}
		if one, ok := is["const"]; has && ok && value != one {
			return false
		}
	}
	required, _ := condition["required"].([]string)
	for _, key := range required {
		if _, has := m[key]; !has {
			return false
		}
	}
	if not, ok := condition["not"].(schema); ok && holds(not, m) {
		return false
	}
	any, ok := condition["anyOf"].([]schema)
	return !ok || slices.ContainsFunc(any, func(c schema) bool { return holds(c, m) })
}

// TestSchemaDraws has the parser take, but for what a schema cannot say, whatever the
// schema takes.
func TestSchemaDraws(t *testing.T) {
	s := compiledSchema(t)
	d := drawer{definitions()}
	rapid.Check(t, func(t *rapid.T) {
		drawn := d.draw(t, labSchema())
		text, err := json.Marshal(drawn)
		if err != nil {
			t.Fatal(err)
		}
		i := instanceOf(text)
		if i == nil {
			t.Skip("YAML refuses a character")
		}
		if _, err := i.complaints(t, s); err != nil {
			t.Fatalf("the schema refuses what was drawn from it: %v\n%s", err, text)
		}
		_, err = ParseWith(Options{Read: readSamples}, "drawn.yaml", text)
		var list ErrorList
		if errors.As(err, &list) {
			for _, e := range list {
				if !beyond(e.Message) && !slices.ContainsFunc(beyondDraws, func(p string) bool { return matches(p, e.Message) }) {
					t.Errorf("%v", e)
				}
			}
		}
	})
}
