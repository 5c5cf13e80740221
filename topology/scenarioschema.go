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
		"name":       anyOf(nameSchema(maxNodeName), schema{"type": "string", "pattern": rangePattern}).describedAs("The workload's name; with a range such as flow-[1-4] one workload for each."),
		"operation":  oneWord(texts(operations)...).describedAs("What is done: messages of send, write or read, connections of connect, requests of storage, rounds of allreduce or rping, or the program of exec."),
		"from":       textSchema().describedAs("The host that connects and posts; a range where the name has one."),
		"to":         textSchema().describedAs("The host that it connects to; a range where the name has one."),
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
		"timeout":    durationSchema().describedAs("Of exec: from which a program has failed. Absent: 10m."),
		"exec":       programsSchema().describedAs("Programs by the hosts that they run in: first a server, then the clients that begin when it is ready."),
		"ready":      readySchema().describedAs("With exec: when the server is ready: listening, started, or a port at which it listens. Absent: listening."),
		"start":      orVariable(anyOf(schema{"const": manual}, durationSchema())).describedAs("After all nodes are ready, or manual: when the timeline starts it. Absent: at once."),
	}
}

func workloadSchema() schema {
	s := complete(workloadKeys(), "name")
	var barred []string // beside exec
	for key := range workloadKeys() {
		if !slices.Contains(execKeys, key) && !slices.Contains([]string{"name", "start"}, key) {
			barred = append(barred, key)
		}
	}
	rules := []schema{rule(has("exec"), schema{"properties": bars(barred)}, schema{"properties": bars([]string{"ready"}), "required": []string{"operation"}})}
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

// has is a condition of a schema: a map with one of the keys.
func has(keys ...string) schema {
	var any []schema
	for _, key := range keys {
		any = append(any, schema{"required": []string{key}})
	}
	return schema{"anyOf": any}
}

// rule is what holds of maps that meet a condition, and of those that do not.
func rule(condition, then, otherwise schema) schema {
	s := schema{"if": condition, "then": then}
	if otherwise != nil {
		s["else"] = otherwise
	}
	return s
}

func nodeText(of string) schema { return textSchema().describedAs(of) }

func linkText(of string) schema { return matching("[^:]*:[\\s\\S]*").describedAs(of) }

func eventSchema() schema {
	node := func(what string) schema { return nodeText("A node that " + what + ".") }
	s := complete(keys{
		"name":      nameSchema(maxNodeName).describedAs("By which other entries refer to this one."),
		"at":        durationSchema().describedAs("When it happens, after all nodes are ready."),
		"when":      reference("trigger").describedAs("What it waits for."),
		"after":     textSchema().describedAs("The name of the entry that it waits for."),
		"wait":      durationSchema().describedAs("With when and after: how long after that. Absent: at once."),
		"repeat":    whole(1, maxRepeat).describedAs("How often it happens. Absent: once."),
		"every":     durationSchema().describedAs("With repeat: from one time to the next."),
		"link":      linkText("The link, by an endpoint."),
		"from":      textSchema().describedAs("With set, reset, cut and heal: a node at the link, whose sent packets alone are meant."),
		"set":       reference("set").describedAs("What changes of the impairments; what it does not name stays."),
		"reset":     onlyTrueSchema().describedAs("The impairments are those of the file again."),
		"cut":       onlyTrueSchema().describedAs("Nothing arrives any more, though the ends keep their carrier."),
		"down":      onlyTrueSchema().describedAs("The carrier goes, in both directions."),
		"up":        onlyTrueSchema().describedAs("The carrier comes back."),
		"partition": listOf(listOf(textSchema())).describedAs("Sets of nodes: links between different sets go down."),
		"heal":      onlyTrueSchema().describedAs("With link: it is not cut any more. Without: what the partition took down comes back."),
		"stop":      nodeText("A node that is switched off, or a workload that ends early."),
		"start":     nodeText("A node that is switched on, or a workload that starts."),
		"restart":   node("is switched off and on"),
		"kill":      node("crashes"),
		"pause":     node("stops where it is"),
		"resume":    node("goes on from there"),
		"exec":      reference("command").describedAs("What sh -c runs in a node, or a list of the program and its arguments."),
		"node":      nodeText("With exec: where it runs."),
		"timeout":   durationSchema().describedAs("With exec: from which it has failed. Absent: 1m."),
		"snapshot":  nameSchema(maxNodeName).describedAs("A name under which all counters are kept for checks."),
		"mark":      anyOf(schema{"type": "string", "pattern": `^[^\r\n]+$`, "maxLength": maxMark}, schema{"type": []string{"number", "boolean"}}).describedAs("A comment in captures and reports."),
	}).exactlyOne(eventActions...)
	s["dependentRequired"] = schema{"repeat": []string{"every"}, "every": []string{"repeat"}}
	withLink := slices.DeleteFunc(slices.Clone(linkActions), func(action string) bool { return action == "heal" })
	withoutLink := slices.DeleteFunc(slices.Clone(eventActions), func(action string) bool { return slices.Contains(linkActions, action) })
	s["allOf"] = []schema{
		schema{}.requiring("oneOf", "at", "when", "after"),
		rule(has("at"), schema{"properties": bars([]string{"wait"})}, nil),
		rule(has(withLink...), schema{"required": []string{"link"}}, nil),
		rule(has(withoutLink...), schema{"properties": bars([]string{"link", "from"})}, nil),
		rule(schema{"required": []string{"link"}}, schema{}, schema{"properties": bars([]string{"from"})}),
		rule(has("down", "up"), schema{"properties": bars([]string{"from"})}, nil),
		rule(has("exec"), schema{"required": []string{"node"}}, schema{"properties": bars([]string{"node", "timeout"})}),
	}
	return s
}

func triggerSchema() schema {
	s := complete(keys{
		"workload": textSchema().describedAs("A workload's name."),
		"state":    oneWord(texts(states)...).describedAs("With workload: what it has come to."),
		"messages": countedSchema().describedAs(`With workload: how many messages are done, such as ">= 1000".`),
		"counter":  oneWord(Counters()...).describedAs("A counter's name."),
		"node":     textSchema().describedAs("With counter: whose it is. Absent: the sum over all hosts."),
		"value":    countedSchema().describedAs(`With counter: what it has come to, such as "> 0".`),
	}).exactlyOne("workload", "counter")
	of := schema{"properties": bars([]string{"node", "value"})}
	s["allOf"] = []schema{
		rule(has("workload"), of.requiring("oneOf", "state", "messages"), nil),
		rule(has("counter"), schema{"properties": bars([]string{"state", "messages"}), "required": []string{"value"}}, nil),
	}
	return s
}

func chaosSchema() schema {
	s := complete(keys{
		"kind":  oneWord(texts(chaosKinds)...).describedAs("What happens: a link goes down or is impaired, a node is killed, paused or restarted."),
		"start": durationSchema().describedAs("Before which nothing happens. Absent: 0ms."),
		"until": durationSchema().describedAs("From which nothing more happens."),
		"every": durationSchema().describedAs("From one time to the next, at the mean."),
		"for":   durationSchema().describedAs("How long each effect lasts. Of all kinds but restart."),
		"links": oneOrList(matching("[^:]*:[\\s\\S]*|[\\s\\S]*[*?\\[][\\s\\S]*"), 1<<30).describedAs("Endpoints of the links, or patterns of them. Absent: all links."),
		"nodes": oneOrList(textSchema(), 1<<30).describedAs("The nodes, or patterns of names. Absent: all hosts."),
		"set":   reference("set").describedAs("Of impair: what changes."),
	}, "kind", "every", "until")
	var rules []schema
	for _, k := range chaosKinds {
		rules = append(rules, when(schema{"properties": bars(chaosBars(k)), "required": chaosNeeds(k)}, map[string][]string{"kind": {string(k)}}))
	}
	s["allOf"] = rules
	return s
}

func checkSchema() schema {
	k := keys{
		"workload":              textSchema().describedAs("A workload, by its name."),
		"counter":               oneWord(Counters()...).describedAs("A counter, by its name."),
		"link":                  linkText("A link, by an endpoint."),
		string(Leftovers):       countedSchema().describedAs("How many NDK objects are left when all workloads have ended."),
		string(OpenConnections): countedSchema().describedAs("How many connections are left when all workloads have ended."),
		"exec":                  reference("command").describedAs("What sh -c runs in a node at the end, or a list of the program and its arguments."),
		"verified":              onlyTrueSchema().describedAs("Of a workload: every payload was right."),
		"value":                 countedSchema().describedAs(`Of a counter, such as "> 0".`),
		"node":                  textSchema().describedAs("Whose counter or leftovers it is, or where exec runs. Absent: all hosts."),
		"from":                  textSchema().describedAs("Of a link: the node whose sent packets alone are meant."),
		"at":                    durationSchema().describedAs("Of a counter: when, after all nodes are ready. Absent: at the end."),
		"snapshot":              textSchema().describedAs("Of a counter: the timeline's snapshot that is looked at."),
		"status":                whole(0, 255).describedAs("Of exec: what it ends with. Absent: 0."),
		"output":                textSchema().describedAs("Of exec: a regular expression that its output matches."),
		"timeout":               durationSchema().describedAs("Of exec: from which it has failed. Absent: 1m."),
	}
	for _, m := range slices.Concat(workloadMetrics(), linkMetrics()) {
		k[string(m.metric)] = m.schema.describedAs(m.what)
	}
	s := complete(k).exactlyOne(checkSubjects...)
	var rules []schema
	for _, subject := range checkSubjects {
		var barred []string
		for key := range k {
			if !slices.Contains(checkSubjects, key) && !slices.Contains(checkKeys(subject), key) {
				barred = append(barred, key)
			}
		}
		all, some := checkNeeds(subject)
		then := schema{"properties": bars(barred)}
		if all != nil {
			then["required"] = all
		}
		if some != nil {
			then.requiring("anyOf", some...)
		}
		rules = append(rules, rule(has(subject), then, nil))
	}
	s["allOf"] = append(rules, rule(has("snapshot"), schema{"properties": bars([]string{"at"})}, nil))
	return s
}

func baselineSchema() schema {
	return complete(keys{
		"file":      textSchema().describedAs("A report that run -o json has printed; a relative path is from the topology's folder."),
		"tolerance": percentages.schema().describedAs("By which a metric may be worse. Absent: 10%."),
		"metrics":   oneOrList(oneWord(texts(baselineMetrics())...), 1<<30).describedAs("Which are compared. Absent: throughput and latency_p99."),
		"workloads": oneOrList(textSchema(), 1<<30).describedAs("Whose, by name or by patterns. Absent: all that both have."),
	}, "file")
}

func scenarioSchemas() map[string]schema {
	return map[string]schema{
		"event":    eventSchema(),
		"trigger":  triggerSchema(),
		"set":      withLeast(complete(impairmentProperties(false)), "minProperties"),
		"chaos":    chaosSchema(),
		"check":    checkSchema(),
		"baseline": baselineSchema(),
		"workload": workloadSchema(),
		"mix": complete(keys{
			"mix": schema{"type": "array", "items": sizes.schema(), "minItems": 1, "maxItems": maxSizes}.describedAs("Sizes, of which each message has one."),
		}, "mix"),
		"command": anyOf(reference("commandText"), schema{"type": "array", "prefixItems": []schema{reference("commandText")}, "items": textSchema(), "minItems": 1}),
	}
}
