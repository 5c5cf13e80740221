package topology

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ndklab/ndklab/topology/shape"
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

// pattern is what values of a quantity look like.
func (q quantity) pattern() string {
	var units []string
	for _, u := range q.units {
		units = append(units, u.name)
	}
	return decimals + "(?:" + strings.Join(units, "|") + ")"
}

func (q quantity) schema() schema { return matching(q.pattern()) }

// goDuration is time.ParseDuration's syntax.
const goDuration = `(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:ns|us|µs|μs|ms|s|m|h))+`

func durationSchema() schema { return matching(`\+?` + goDuration) }
func signedSchema() schema   { return matching(`[+-]?` + goDuration) }

// orNone is an impairment's value, or none.
func orNone(s schema) schema { return anyOf(oneWord(none), s) }

// keys are the keys of a map, each with its schema, which has a description.
type keys map[string]schema

// and is both.
func (k keys) and(more keys) keys {
	all := keys{}
	for _, some := range []keys{k, more} {
		for key, s := range some {
			all[key] = s
		}
	}
	return all
}

// without is the keys but one.
func (k keys) without(key string) keys {
	some := k.and(nil)
	delete(some, key)
	return some
}

// object is a map that has some of the keys, or nothing at all.
func object(k keys) schema {
	return schema{"type": []string{"object", "null"}, "properties": k, "additionalProperties": false}
}

// complete is a map that has some of the keys, and all of the required ones.
func complete(k keys, required ...string) schema {
	s := object(k)
	s["type"] = "object"
	if required != nil {
		s["required"] = required
	}
	return s
}

// exactlyOne is complete with exactly one of some keys.
func (s schema) exactlyOne(keys ...string) schema { return s.requiring("oneOf", keys...) }

// atLeastOne is complete with at least one of some keys.
func (s schema) atLeastOne(keys ...string) schema { return s.requiring("anyOf", keys...) }

func (s schema) requiring(how string, keys ...string) schema {
	var each []schema
	for _, key := range keys {
		each = append(each, schema{"required": []string{key}})
	}
	s[how] = each
	return s
}

// listOf is a list, or nothing at all.
func listOf(items schema) schema { return schema{"type": []string{"array", "null"}, "items": items} }

// oneOrList is a value or a list that is not empty.
func oneOrList(s schema, most int) schema {
	return anyOf(s, schema{"type": "array", "items": s, "minItems": 1, "maxItems": most})
}

// mapOf is a map of names to what each stands for.
func mapOf(names, what schema) schema {
	return schema{"type": []string{"object", "null"}, "propertyNames": names, "additionalProperties": what}
}

// nameSchema is a plain name, which YAML may take for a number or a truth value.
func nameSchema(most int) schema {
	return anyOf(
		schema{"type": "string", "pattern": plain().String(), "maxLength": most},
		schema{"type": "integer", "minimum": 0},
		schema{"type": "boolean"},
		schema{"type": "string", "pattern": variable},
	)
}

// keyNames is nameSchema for the keys of a map.
func keyNames() schema { return schema{"pattern": plain().String(), "maxLength": maxNodeName} }

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

func labSchema() schema {
	lab := complete(keys{
		"name":      nameSchema(MaxLabName).describedAs("The lab's name, up to 40 characters of a-z, 0-9 and, inside, -. Absent: the file's name without its endings."),
		"labels":    mapOf(schema{"pattern": labelName().String(), "maxLength": maxLabelName}, labelSchema()).describedAs("By which commands select labs."),
		"seed":      whole(0, math.MaxUint64).describedAs("Of every random decision. Absent: one is drawn and printed."),
		"topology":  reference("topology").describedAs("Nodes and links."),
		"workloads": listOf(reference("workload")).describedAs("RDMA traffic between hosts."),
		"timeline":  listOf(reference("event")).describedAs("What changes while the lab runs."),
		"chaos":     listOf(reference("chaos")).describedAs("What changes at random."),
		"checks":    listOf(reference("check")).describedAs("What has to hold."),
		"baseline":  reference("baseline").describedAs("An earlier run that this one is compared with."),
		"capture":   listOf(reference("capture")).describedAs("Packets to be recorded."),
	}, "topology")
	lab["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	lab["title"] = "ndklab topology"
	lab["$defs"] = definitions()
	return lab
}

func definitions() map[string]schema {
	defs := map[string]schema{
		"topology": complete(keys{
			"fabric":   reference("fabric").describedAs("Nodes and links of a usual shape; nodes and links add to them."),
			"defaults": reference("defaults").describedAs("What holds for all, unless something nearer says otherwise."),
			"kinds":    mapOf(keyNames(), reference("kind")).describedAs("What the nodes of each kind have in common; also of the kinds host, switch and router."),
			"groups":   mapOf(keyNames(), reference("group")).describedAs("What the nodes of each group have in common."),
			"nodes":    nodesSchema().describedAs("The nodes by name, or several by a range such as h[1-64]. A name with nothing behind it is a host with the defaults. A pattern such as leaf* says something of nodes that others declare."),
			"links":    listOf(reference("link")).describedAs("The links, each between two nodes, or a node and what is outside."),
		}).nodesWithout("fabric"),
		"fabric": fabricSchema(),
		"defaults": object(keys{
			"node": object(setupKeys().and(keys{
				"kind":    textSchema().describedAs("The kind of nodes that have none."),
				"group":   textSchema().describedAs("The group of nodes that have none."),
				"cpu":     limitKeys()["cpu"],
				"memory":  limitKeys()["memory"],
				"restart": limitKeys()["restart"],
				"verbs":   limitKeys()["verbs"],
				"pids":    limitKeys()["pids"],
			})).describedAs("What holds for nodes."),
			"link":    object(linkKeys(false)).describedAs("What holds for links."),
			"adapter": reference("adapter").describedAs("What holds for the adapters of hosts."),
		}),
		"kind":    object(nodeKeys()),
		"group":   object(nodeKeys().without("group")),
		"node":    object(nodeKeys()),
		"adapter": object(adapterSchemas()),
		"file": complete(keys{
			"source":  textSchema().describedAs("The file to copy; a relative path is from the topology's folder."),
			"content": textSchema().describedAs("The text of the file."),
			"mode":    anyOf(schema{"type": "integer", "minimum": 0, "maximum": 777}, matching("(?:0o?)?[0-7]{3}")).describedAs("Permissions in octal. Absent: 0644."),
		}).exactlyOne("source", "content"),
		"exec": anyOf(reference("commandText"), complete(keys{
			"command": reference("commandText").describedAs("What sh -c runs."),
			"stage":   oneWord(string(Created), string(Configured), string(Healthy)).describedAs("From which stage of the node it runs. Absent: configured."),
		}, "command")),
		"commandText": anyOf(schema{"type": "string", "pattern": `\S`}, schema{"type": []string{"number", "boolean"}}),
		"healthcheck": complete(keys{
			"command":      reference("commandText").describedAs("What sh -c runs: status 0 is healthy."),
			"interval":     durationSchema().describedAs("From the end of a check to the next, 10ms to 24h. Absent: 10s."),
			"timeout":      durationSchema().describedAs("From which a check has failed, 10ms to 1h. Absent: 5s."),
			"retries":      whole(1, 1000).describedAs("So many checks that fail in a row make the node unhealthy. Absent: 3."),
			"start_period": durationSchema().describedAs("For how long checks that fail do not count, until one succeeds. Absent: 30s."),
		}, "command"),
		"wait": complete(keys{
			"node":  textSchema().describedAs("The node to wait for."),
			"stage": oneWord(stageWords()...).describedAs("What it must have come to."),
		}, "node", "stage"),
		"link": complete(linkKeys(true).and(keys{
			"endpoints": schema{"type": "array", "items": reference("endpoint"), "minItems": 2, "maxItems": 2}.describedAs("The two ends; with ranges such as h[1-64]:eth0 those of several links, with * as in sw:p* the next free interfaces."),
			"cross":     truthSchema().describedAs("true: where the ends have ranges, a link from each node of the first to each of the second. Absent: from each to the one in the same place."),
			"down":      truthSchema().describedAs("true: the link starts without carrier."),
			"capture":   anyOf(truthSchema(), reference("path")).describedAs("true: both ends are recorded; or the file to record them to."),
			"reverse":   object(impairmentProperties(false)).describedAs("What differs for packets that the second endpoint sends."),
		}), "endpoints"),
		"endpoint": anyOf(
			matching("[^:]*:"+interfacePattern).except(":"+reservedInterfaces),
			matching("[^:]*:"+interfaceWord),
			complete(keys{
				"node":      textSchema().describedAs("The node, or external."),
				"interface": anyOf(matching(interfacePattern).except("^"+reservedInterfaces), matching(interfaceWord), schema{"type": []string{"integer", "boolean"}}).describedAs("The interface's name, such as eth0."),
				"addresses": listOf(matching(`[0-9a-fA-F:.]+/[0-9]+`)).describedAs("With their prefix lengths. Absent: chosen."),
			}, "node", "interface")),
		"tolerance": object(keys{
			"delay_p10": durationSchema().describedAs("By which nine of ten packets may leave late. Absent: 200us."),
			"delay":     durationSchema().describedAs("By which half of them may leave late. Absent: 1ms."),
			"delay_p99": durationSchema().describedAs("By which all but 1 % of them may leave late. Absent: 20ms."),
			"rate":      percentages.schema().describedAs("By which the rate may fall short while packets wait. Absent: 10%."),
			"loss":      percentages.schema().describedAs("Share of packets that may be lost unasked. Absent: 0.1%."),
		}),
		"capture": complete(keys{
			"link":       matching("[^:]*:[\\s\\S]*").describedAs("A link, by an endpoint: both its ends are recorded."),
			"interfaces": schema{"type": "array", "minItems": 1, "items": matching("[^:]*:[\\s\\S]*")}.describedAs("Endpoints to record."),
			"file":       reference("path").describedAs("Where the packets go; what is there is overwritten."),
			"filter":     textSchema().describedAs("Which packets, in the language of tcpdump. Absent: all."),
			"snaplen":    whole(MinSnaplen, 1<<18).describedAs("Bytes of each packet that are kept. Absent: all."),
			"ring": complete(keys{
				"size":  sizes.schema().describedAs("From which a file is full and another begun."),
				"files": whole(1, 10000).describedAs("How many of the last files stay. Absent: 5."),
			}, "size").describedAs("Files that follow each other."),
		}, "file").exactlyOne("link", "interfaces"),
		"path": anyOf(schema{"type": "string", "pattern": "[^/]$", "not": schema{"const": "-"}}, schema{"type": []string{"number", "boolean"}}),
	}
	maps.Copy(defs, impairmentSchemas())
	maps.Copy(defs, scenarioSchemas())
	return defs
}

// except is the schema without values that match.
func (s schema) except(pattern string) schema {
	s["not"] = schema{"pattern": pattern}
	return s
}

func stageWords() (words []string) {
	for _, s := range Stages {
		words = append(words, string(s))
	}
	return words
}

func nodesSchema() schema {
	one := schema{"pattern": plain().String(), "maxLength": maxNodeName, "not": schema{"const": external}}
	return mapOf(anyOf(one, schema{"pattern": nodesPattern}), reference("node"))
}

// nodesWithout is complete with nodes, one at least, where the map has not got a key
// that stands for nodes.
func (s schema) nodesWithout(key string) schema {
	s["if"] = schema{"required": []string{key}}
	s["else"] = schema{"required": []string{"nodes"}, "properties": schema{"nodes": schema{"type": "object", "minProperties": 1}}}
	return s
}

func fabricSchema() schema {
	k := keys{"shape": oneWord(shapeNames()...).describedAs("What it looks like.")}
	tiers := keys{}
	var rules []schema
	for _, s := range shape.All() {
		for _, p := range s.Parameters {
			k[parameterKey(p)] = whole(uint64(p.Minimum), uint64(p.Maximum)).describedAs(fmt.Sprintf("%s: %s, %d to %d. Absent: %d.", s.Name, p.Usage, p.Minimum, p.Maximum, p.Default))
		}
		for _, tier := range s.Tiers {
			tiers[tier] = object(linkKeys(false)).describedAs("What holds for the links of this tier, before the link defaults.")
		}
	}
	k["nodes"] = whole(1, 2000).describedAs("How many hosts; of dumbbell on each side.")
	k["tiers"] = object(tiers).describedAs("How the links of each tier fare: of hosts, and those that lead up to spines, or to the routers agg and core, or between two switches (trunk).")
	for _, s := range shape.All() {
		var barred []string
		own := []string{"shape", "tiers"}
		for _, p := range s.Parameters {
			own = append(own, parameterKey(p))
		}
		for key := range k {
			if !slices.Contains(own, key) {
				barred = append(barred, key)
			}
		}
		rules = append(rules, when(schema{"properties": bars(barred)}, map[string][]string{"shape": {s.Name}}))
	}
	f := complete(k, "shape")
	f["allOf"] = rules
	return f
}

// labelSchema admits what labelValue takes.
func labelSchema() schema {
	return anyOf(schema{"type": []string{"number", "boolean"}}, schema{"type": "string", "pattern": `^[^\x00-\x1f\x7f-\x9f]*$`, "maxLength": maxLabelValue})
}

func limitKeys() keys {
	return keys{
		"cpu":     fraction(0.01, 4096).describedAs("Cores that a host may use. Absent: no limit."),
		"memory":  sizes.schema().describedAs("That a host may use, 16MiB to 16TiB. Absent: no limit."),
		"pids":    whole(64, 1<<22).describedAs("How many processes and threads a host may have. Absent: no limit."),
		"restart": oneWord("never", "always").describedAs("Whether the node is started again when its agent has died. Absent: never."),
		"verbs":   oneWord("off", "on").describedAs("off: programs that use libibverbs or librdmacm do not find the host's adapter. Absent: on."),
		"adapter": reference("adapter").describedAs("The host's RDMA adapter."),
		"stp":     truthSchema().describedAs("true: switches whose links make a ring agree on a tree by the spanning tree protocol."),
		"port":    object(portSchemas()).describedAs("Of each port of a switch or router: how the packets fare that it sends."),
	}
}

func setupKeys() keys {
	return keys{
		"env": mapOf(schema{"pattern": variableName().String()}, textSchema()).describedAs("Variables that every command in the node has."),
		"files": mapOf(schema{"pattern": `^(/[^/\x00]+)+$`, "not": schema{"pattern": `/\.\.?(/|$)|^/(proc|sys|dev)(/|$)`}, "maxLength": maxPath}, reference("file")).
			describedAs("Files that this node alone sees, by absolute path."),
		"exec":        listOf(reference("exec")).describedAs("Commands that run in the node before it is ready, one after the other."),
		"healthcheck": orNone(reference("healthcheck")).describedAs("A command that tells whether the node does what it is there for."),
		"wait_for":    schema{"type": []string{"array", "null"}, "items": reference("wait"), "maxItems": maxWaits}.describedAs("Other nodes, and what they must have come to before this one runs its commands."),
	}
}

func nodeKeys() keys {
	return limitKeys().and(setupKeys()).and(keys{
		"kind":  textSchema().describedAs("host (the default), switch, router, or one of kinds."),
		"group": textSchema().describedAs("One of groups."),
	})
}

func portSchemas() keys {
	port := keys{}
	for _, key := range portKeys {
		port[key] = impairmentProperties(true)[key]
	}
	return port
}

func linkKeys(faultsFrom bool) keys {
	return impairmentProperties(faultsFrom).and(keys{
		"mtu":       whole(1280, 65521).describedAs("Bytes of IP packet. Absent: 4200."),
		"engine":    oneWord(string(Linkem), string(Netem)).describedAs("What does the impairments. Absent: linkem."),
		"offload":   oneWord("off", "on").describedAs("off: every wire packet leaves its node by itself. Absent: on."),
		"tolerance": reference("tolerance").describedAs("How far the link may be from what was asked of it."),
		"overrun":   oneWord("fail", "allow").describedAs("allow: a link beyond its tolerance does not fail the run. Absent: fail."),
	})
}

func withLeast(s schema, what string) schema {
	s[what] = 1
	return s
}

// adapterSchemas is the adapter block. What is no number and no size is found by what
// its parser says.
func adapterSchemas() keys {
	k := keys{}
	for _, key := range adapterKeys() {
		name := adapterName(key.name)
		_, asTruth := key.parse("true")
		_, asSize := key.parse("1KiB")
		_, asSmall := key.parse("1B")
		_, asLarge := key.parse("1MiB")
		_, asHex := key.parse("0x1")
		switch {
		case asTruth == nil:
			k[key.name] = truthSchema().describedAs(name + ": true or false.")
		case asSize == nil || asSmall == nil || asLarge == nil:
			k[key.name] = sizes.schema().describedAs(name + ": a size such as 64KiB.")
		case asHex == nil:
			k[key.name] = hexadecimal(largest(key)).describedAs(name + ": a number, decimal or 0x...")
		case key.name == "roce_frame_size":
			k[key.name] = orVariable(schema{"enum": []any{256, 512, 1024, 2048, 4096, "256", "512", "1024", "2048", "4096"}}).describedAs(name + ": bytes of payload in a packet.")
		default:
			k[key.name] = whole(smallest(key), largest(key)).describedAs(name + ": a whole number.")
		}
	}
	return k
}

// adapterName is what NDK calls a key, near enough for people.
func adapterName(key string) string {
	var name strings.Builder
	for word := range strings.SplitSeq(key, "_") {
		name.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return name.String()
}

// smallest and largest are the range of a key's numbers.
func smallest(k adapterKey) uint64 {
	for n := uint64(0); ; n++ {
		if _, err := k.parse(strconv.FormatUint(n, 10)); err == nil {
			return n
		}
	}
}

func largest(k adapterKey) uint64 {
	most := smallest(k)
	for bit := uint64(1) << 40; bit > 0; bit >>= 1 {
		if _, err := k.parse(strconv.FormatUint(most+bit, 10)); err == nil {
			most += bit
		}
	}
	return most
}
