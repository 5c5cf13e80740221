package topology

import "slices"

// This file is the scenario's part of the schema for editors.

// texts is some words as texts.
func texts[T ~string](words []T) []string {
	all := make([]string, len(words))
	for i, w := range words {
		all[i] = string(w)
	}
	return all
}

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

func workloadKeys() keys {
	size := orVariable(anyOf(sizes.schema(), schema{"const": allSizes}))
	list := schema{"type": "array", "items": sizes.schema(), "minItems": 1, "maxItems": maxSizes}
	return keys{
		"name":       nameSchema(maxNodeName).describedAs("The workload's name."),
		"operation":  oneWord(texts(operations)...).describedAs("What is done: messages of send, write or read, connections of connect, requests of storage, rounds of allreduce or rping, or the program of exec."),
		"from":       textSchema().describedAs("The host that connects and posts."),
		"to":         textSchema().describedAs("The host that it connects to."),
		"pattern":    oneWord(texts(patterns)...).describedAs("Who exchanges messages with whom. Absent: pair, from with to."),
		"nodes":      oneOrList(textSchema(), 1<<30).describedAs("Hosts, by name or by patterns such as worker-*."),
		"size":       anyOf(size, list, reference("mix")).describedAs("Of a message, 0B to 1GiB; a list, or all, for a sweep from one size to the next; {mix: [...]} for messages of different sizes."),
		"measure":    oneWord(texts(measures)...).describedAs("bandwidth: many messages in flight; latency: one, answered in kind. Absent: bandwidth."),
		"depth":      whole(1, 4096).describedAs("Messages in flight on a connection. Absent: 1. Of connect: connections being made at once. Absent: 16."),
		"qps":        whole(1, 1<<16).describedAs("Connections of each flow. Absent: 1. Of connect: those open at once. Absent: as many as depth."),
		"inline":     truthSchema().describedAs("true: messages are sent inline."),
		"srq":        truthSchema().describedAs("true: the server's queue pairs take receives from one SRQ."),
		"completion": oneWord("event", "poll").describedAs("How completions are learned of. Absent: event."),
		"rate":       rates.schema().describedAs("Of payload, that each flow posts at most. Absent: no limit."),
		"count":      whole(1, 1<<40).describedAs("How many messages of each flow, or connections, requests or rounds."),
		"duration":   durationSchema().describedAs("For how long."),
		"warmup":     durationSchema().describedAs("At the beginning, not measured. Absent: none."),
		"verify":     truthSchema().describedAs("true: every payload is compared byte for byte."),
		"reconnect":  truthSchema().describedAs("true: a connection that fails is made again, and what was in flight posted once more."),
		"command":    reference("command").describedAs("Of exec: what sh -c runs, or a list of the program and its arguments."),
		"timeout":    durationSchema().describedAs("Of exec: from which the program has failed. Absent: 10m."),
		"start":      orVariable(anyOf(schema{"const": manual}, durationSchema())).describedAs("After all nodes are ready, or manual: when the timeline starts it. Absent: at once."),
	}
}

func workloadSchema() schema {
	s := complete(workloadKeys(), "name", "operation")
	var rules []schema
	var withFlows []string
	for _, o := range operations {
		if slices.Contains(operationKeys[o], "pattern") {
			withFlows = append(withFlows, string(o))
		}
		var barred []string
		for key := range workloadKeys() {
			if !slices.Contains(operationKeys[o], key) && !slices.Contains([]string{"name", "operation", "start"}, key) {
				barred = append(barred, key)
			}
		}
		then := schema{"properties": bars(barred), "required": operationNeeds(o)}
		if o != Program {
			then.requiring("oneOf", untilKeys...)
		}
		sweeps := slices.Contains(operationKeys[o], "measure")
		switch {
		case sweeps || !slices.Contains(operationKeys[o], "size"):
		case o == Storage:
			then["properties"].(schema)["size"] = anyOf(sizes.schema(), reference("mix"), schema{"type": "string", "pattern": variable})
		default:
			then["properties"].(schema)["size"] = anyOf(sizes.schema(), schema{"type": "string", "pattern": variable})
		}
		rules = append(rules, when(then, map[string][]string{"operation": {string(o)}}))
	}
	for _, p := range patterns {
		barred := slices.DeleteFunc([]string{"from", "to", "nodes"}, func(key string) bool { return slices.Contains(patternKeys[p], key) })
		rules = append(rules, when(schema{"properties": bars(barred), "required": patternKeys[p]}, map[string][]string{"operation": withFlows, "pattern": {string(p)}}))
	}
	absent := when(schema{"properties": bars([]string{"nodes"}), "required": patternKeys[Pair]}, map[string][]string{"operation": withFlows})
	absent["if"].(schema)["not"] = schema{"required": []string{"pattern"}}
	s["allOf"] = append(rules, absent, when(schema{"properties": bars([]string{"depth"})}, map[string][]string{"measure": {string(Latency)}}))
	return s
}

func scenarioSchemas() map[string]schema {
	return map[string]schema{
		"workload": workloadSchema(),
		"mix": complete(keys{
			"mix": schema{"type": "array", "items": sizes.schema(), "minItems": 1, "maxItems": maxSizes}.describedAs("Sizes, of which each message has one."),
		}, "mix"),
		"command": anyOf(reference("commandText"), schema{"type": "array", "prefixItems": []schema{reference("commandText")}, "items": textSchema(), "minItems": 1}),
	}
}
