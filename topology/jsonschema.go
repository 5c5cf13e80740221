package topology

import (
	"encoding/json"
	"slices"
	"strings"
)

// This file is the schema for editors. Tests hold it to the parser: both have the same
// keys, and take and refuse the same files, but for what a schema cannot say:
//
//   - what depends on other values: names that have to exist or to differ, ends and
//     addresses that have to fit together, kinds that do not have a key, loops,
//     routes, cycles of wait_for, and files that have to be there;
//   - ranges, and whole numbers, of values with a unit, and of numbers in quotes;
//   - how a number, true or false is spelt: the schema sees what YAML makes of 0x10;
//   - names that the kernel or the filter language alone understands;
//   - keys given twice, tags, and the size of files;
//   - variables of the environment: a text that has one is taken as it is.

// A schema is a JSON Schema.
type schema map[string]any

// JSONSchema is the JSON Schema (draft 2020-12) of topology files, with a description
// of every key.
func JSONSchema() []byte {
	text, err := json.MarshalIndent(labSchema(), "", "  ")
	if err != nil {
		panic(err) // nothing in it can fail
	}
	return append(text, '\n')
}

// describedAs is the schema with a description.
func (s schema) describedAs(text string) schema {
	described := schema{"description": text}
	for key, value := range s {
		described[key] = value
	}
	return described
}

// reference is a schema of $defs.
func reference(name string) schema { return schema{"$ref": "#/$defs/" + name} }

func anyOf(all ...schema) schema { return schema{"anyOf": all} }

// variable is a text that has a variable of the environment in it: whether the text
// is right without it nobody knows.
const variable = `\$\{`

// orVariable is the schema, or a text with a variable.
func orVariable(s schema) schema { return anyOf(s, schema{"type": "string", "pattern": variable}) }

// oneWord is a value that is one of some texts.
func oneWord(words ...string) schema { return orVariable(schema{"enum": words}) }

// matching is a text that matches a pattern as a whole, or has a variable.
func matching(pattern string) schema {
	return schema{"type": "string", "pattern": "^(?:" + pattern + ")$|" + variable}
}

// textSchema is any value that is no map, list or nothing.
func textSchema() schema { return schema{"type": []string{"string", "number", "boolean"}} }

// truthSchema is true or false, also in quotes.
func truthSchema() schema { return orVariable(schema{"enum": []any{true, false, "true", "false"}}) }

func onlyTrueSchema() schema { return orVariable(schema{"enum": []any{true, "true"}}) }

// whole is a whole number, also in quotes.
func whole(least, most uint64) schema {
	return anyOf(schema{"type": "integer", "minimum": least, "maximum": most}, matching("[0-9]+"))
}

// hexadecimal is a number that may be written so.
func hexadecimal(most uint64) schema {
	return anyOf(schema{"type": "integer", "minimum": 0, "maximum": most}, matching("0x[0-9a-fA-F]+|[0-9]+"))
}

// fraction is a number that need not be whole.
func fraction(least, most float64) schema {
	return anyOf(schema{"type": "number", "minimum": least, "maximum": most}, matching(decimals))
}

// decimals is number without its unit and its sign.
const decimals = `\+?(?:[0-9]{1,20}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})`

// pattern returns a pattern that matches values of the quantity.
func (q quantity) pattern() string {
	units := textsOf(q.units, func(u unit) string { return u.name })
	return decimals + "(?:" + strings.Join(units, "|") + ")"
}

func (q quantity) schema() schema { return matching(q.pattern()) }

// goDuration is time.ParseDuration's syntax.
const goDuration = `(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:ns|us|µs|μs|ms|s|m|h))+`

func durationSchema() schema { return matching(`\+?` + goDuration) }
func signedSchema() schema   { return matching(`[+-]?` + goDuration) }

// orNone is an impairment's value, or none.
func orNone(s schema) schema { return anyOf(oneWord(none), s) }

func (s schema) requiring(how string, keys ...string) schema {
	var each []schema
	for _, key := range keys {
		each = append(each, schema{"required": []string{key}})
	}
	s[how] = each
	return s
}

// listSchema is a list, or nothing at all.
func listSchema(items schema) schema {
	return schema{"type": []string{"array", "null"}, "items": items}
}

// oneOrList is a value or a list that is not empty.
func oneOrList(s schema, most int) schema {
	return anyOf(s, schema{"type": "array", "items": s, "minItems": 1, "maxItems": most})
}

// mapSchema is a map of names to what each stands for.
func mapSchema(names, what schema) schema {
	return schema{"type": []string{"object", "null"}, "propertyNames": names, "additionalProperties": what}
}

// nameSchema is a plain name, which YAML may take for a number or a truth value.
func nameSchema(most int) schema {
	return anyOf(
		schema{"type": "string", "pattern": plain.compiled().String(), "maxLength": most},
		schema{"type": "integer", "minimum": 0},
		schema{"type": "boolean"},
		schema{"type": "string", "pattern": variable},
	)
}

// keyNames is nameSchema for the keys of a map.
func keyNames() schema { return schema{"pattern": plain.compiled().String(), "maxLength": maxNodeName} }

// rangePattern is a name with ranges, nodesPattern one with ranges or a pattern.
var (
	rangePattern = severalPattern(`\[[0-9][0-9,-]*\]`)
	nodesPattern = severalPattern(`(?:\*|\?|\[\^?[0-9a-z][0-9a-z,-]*\])`)
)

// severalPattern is a plain name that has some of what stands for several texts.
func severalPattern(several string) string {
	return `^(?:[a-z0-9][a-z0-9-]*)?(?:` + several + `[a-z0-9-]*)*` + several + `(?:[a-z0-9-]*[a-z0-9])?$`
}

// interfacePattern matches what interfaceName takes of a link's interface, but for
// reservedInterfaces, and interfaceWord one that stands for several or is a free one.
const (
	interfacePattern   = `[!-$&-)+-.0-9;->@-Z\\-~]{1,15}`
	interfaceWord      = `(?:[!-$&-)+-.0-9;->@-Z\\-~]|\[[0-9][0-9,-]*\])*(?:\[[0-9][0-9,-]*\]|\*)[!-$&-)+-.0-9;->@-Z\\-~]*`
	reservedInterfaces = `(?:\.|\.\.|lo|all|default)$`
)

// bars is a schema of maps that have none of the keys.
func bars(keys []string) schema {
	none := schema{}
	for _, k := range keys {
		none[k] = false
	}
	return none
}

// when is a condition of a schema: maps in which keys have one of some texts are as then
// says.
func when(then schema, keys map[string][]string) schema {
	properties, required := schema{}, []string{}
	for key, words := range keys {
		properties[key] = schema{"enum": words}
		required = append(required, key)
	}
	slices.Sort(required)
	return schema{"if": schema{"properties": properties, "required": required}, "then": then}
}

// has is a condition of a schema: a map with one of the keys.
func has(keys ...string) schema {
	var any []schema
	for _, key := range keys {
		any = append(any, schema{"required": []string{key}})
	}
	return schema{"anyOf": any}
}

// rule returns a schema of which one part holds for maps that meet a condition, and another for those that do not.
func rule(condition, then, otherwise schema) schema {
	s := schema{"if": condition, "then": then}
	if otherwise != nil {
		s["else"] = otherwise
	}
	return s
}

func labSchema() schema {
	lab := labTable().schema()
	lab["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	lab["title"] = "ndklab topology"
	lab["$defs"] = definitions()
	return lab
}

// definitions are the schemas that others refer to.
func definitions() map[string]schema {
	defs := map[string]schema{
		"endpoint":    endpointSchema(),
		"exec":        anyOf(commandText.schema(), execTable().schema()),
		"commandText": anyOf(schema{"type": "string", "pattern": `\S`}, schema{"type": []string{"number", "boolean"}}),
		"command":     anyOf(commandText.schema(), schema{"type": "array", "prefixItems": []schema{commandText.schema()}, "items": textSchema(), "minItems": 1}),
		"path":        anyOf(schema{"type": "string", "pattern": "[^/]$", "not": schema{"const": "-"}}, schema{"type": []string{"number", "boolean"}}),
	}
	for _, t := range tables() {
		if name, s := t.definition(); name != "" {
			defs[name] = s
		}
	}
	return defs
}

// An anyTable is the table of keys of any map.
type anyTable interface {
	title() string
	definition() (name string, s schema)
}

// tables is all tables.
func tables() []anyTable {
	return []anyTable{
		labTable(), hostsTable(), topologyTable(), fabricTable(), tierTable(), defaultsTable(), nodeDefaultsTable(), linkDefaultsTable(),
		nodeTable(), kindTable(), groupTable(), adapterTable(), dcqcnTable(), dctcpTable(), bdpTable(), cnpTable(), portTable(), bufferTable(), prioritiesTable(), watchdogTable(), fileTable(), execTable(), healthTable(), waitTable(),
		linkTable(), reverseTable(), endpointTable(), toleranceTable(), impairmentTable(),
		jitterTable(), lossTable(), reorderTable(), corruptTable(), queueTable(), ecnTable(), flapTable(), faultTable(), faultOfAnyTable(), matchTable(),
		workloadTable(), mixTable(), eventTable(), setTable(), triggerTable(), chaosTable(), checkTable(), baselineTable(), captureTable(), ringTable(),
	}
}

// except is the schema without values that match.
func (s schema) except(pattern string) schema {
	s["not"] = schema{"pattern": pattern}
	return s
}

func nodesSchema() schema {
	one := schema{"pattern": plain.compiled().String(), "maxLength": maxNodeName, "not": schema{"const": external}}
	return mapSchema(anyOf(one, schema{"pattern": nodesPattern}), reference("node"))
}
