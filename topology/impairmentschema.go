package topology

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// This file is the impairments' part of the schema for editors.

// impairmentProperties is the keys of an impairment, whose faults may say whose packets
// they are for.
func impairmentProperties(faultsFrom bool) keys {
	faults := "faultOfAny"
	if faultsFrom {
		faults = "fault"
	}
	return keys{
		"delay":     orNone(durationSchema()).describedAs("Added one way, 0ms to 60s."),
		"jitter":    orNone(anyOf(durationSchema(), reference("jitter"))).describedAs("Varies the delay: 50us, or a map."),
		"loss":      orNone(anyOf(percentages.schema(), reference("loss"))).describedAs("Packets that do not arrive: 1%, or a map."),
		"duplicate": orNone(percentages.schema()).describedAs("Share of packets that arrive twice."),
		"reorder":   orNone(anyOf(percentages.schema(), reference("reorder"))).describedAs("Share of packets that overtake others on their way: 1%, or a map."),
		"corrupt":   orNone(anyOf(percentages.schema(), reference("corrupt"))).describedAs("Share of packets in which a bit is flipped: 0.01%, or a map."),
		"rate":      orNone(rates.schema()).describedAs("1bit to 1tbit per second, of bytes as a wire has them."),
		"burst":     orNone(sizes.schema()).describedAs("Bytes that pass at once after a pause, ahead of rate."),
		"queue":     orNone(anyOf(sizes.schema(), packetCounts.schema(), reference("queue"))).describedAs("What may wait for rate: 4MiB, 1000packets, or a map of both."),
		"ecn":       orNone(reference("ecn")).describedAs("ECN-capable packets are marked from min on, all from max on, of what waits for rate."),
		"cut":       orNone(truthSchema()).describedAs("true: nothing arrives, though the ends keep their carrier."),
		"flap":      orNone(reference("flap")).describedAs("The direction is cut for the last down of each period."),
		"faults":    orNone(schema{"type": []string{"array", "null"}, "items": reference(faults), "maxItems": maxFaults}).describedAs("RDMA packets chosen one by one, and what is done to them."),
	}
}

func impairmentSchemas() map[string]schema {
	share := percentages.schema()
	places := oneOrList(whole(1, 1<<40), maxPlaces)
	jitter := complete(keys{
		"spread":       durationSchema().describedAs("Up to the delay."),
		"samples":      schema{"type": "array", "items": signedSchema(), "minItems": 1, "maxItems": maxSamples}.describedAs("Of which a random one is added to the delay."),
		"file":         textSchema().describedAs("A file of samples, one a line."),
		"distribution": oneWord(string(Uniform), string(Normal), string(Pareto)).describedAs("Of spread. Absent: uniform."),
	}).exactlyOne("spread", "samples", "file")
	jitter["dependentRequired"] = schema{"distribution": []string{"spread"}}
	loss := complete(keys{
		"rate":    share.describedAs("Share of packets."),
		"burst":   fraction(1, maxBurst).describedAs("With rate: mean number of packets that are lost in a row."),
		"every":   whole(1, 1<<40).describedAs("Each so many-th packet."),
		"packets": places.describedAs("Those at these places; 1 is the first."),
	}).atLeastOne("rate", "every", "packets")
	loss["dependentRequired"] = schema{"burst": []string{"rate"}}
	fault := keys{
		"match":  reference("match").describedAs("What has to apply, all of it; {} is every RoCEv2 packet."),
		"action": oneWord(string(Drop), string(Postpone), string(Double), string(Corrode)).describedAs("What is done."),
		"delay":  durationSchema().describedAs("With the action delay: by how much."),
		"from":   textSchema().describedAs("A node at the link: only packets that it sends."),
	}
	faultOf := func(k keys) schema {
		s := complete(k, "match", "action")
		s["if"] = schema{"properties": schema{"action": schema{"const": string(Postpone)}}, "required": []string{"action"}}
		s["then"] = schema{"required": []string{"delay"}}
		s["else"] = schema{"properties": schema{"delay": false}}
		return s
	}
	var bits []any
	for n := 1; n <= MaxCorruptBits; n++ {
		bits = append(bits, n, strconv.Itoa(n))
	}
	return map[string]schema{
		"jitter": jitter,
		"loss":   loss,
		"reorder": complete(keys{
			"probability": share.describedAs("Share of packets."),
			"depth":       whole(1, MaxReorderDepth).describedAs("How many packets each overtakes at most. Absent: 1."),
		}, "probability"),
		"corrupt": complete(keys{
			"probability": share.describedAs("Share of packets."),
			"where":       oneWord("payload", "anywhere").describedAs("Of UDP or TCP, or anywhere behind the Ethernet header. Absent: payload."),
			"bits":        orVariable(schema{"enum": bits}).describedAs("How many bits are flipped. Absent: 1."),
		}, "probability"),
		"queue": complete(keys{
			"bytes":   sizes.schema().describedAs("At most so many bytes."),
			"packets": whole(1, maxPackets).describedAs("At most so many packets."),
		}).atLeastOne("bytes", "packets"),
		"ecn": complete(keys{
			"min": sizes.schema().describedAs("Above which packets are marked."),
			"max": sizes.schema().describedAs("From which all are."),
		}, "min", "max"),
		"flap": complete(keys{
			"period": durationSchema().describedAs("1ms to 24h."),
			"down":   durationSchema().describedAs("At its end."),
		}, "period", "down"),
		"fault":      faultOf(fault),
		"faultOfAny": faultOf(keys(fault).without("from")),
		"match": object(keys{
			"opcode":      oneOrList(anyOf(textSchema()), math.MaxInt32).describedAs("Classes (" + strings.Join(opcodeWords()[:9], ", ") + "), names such as SEND_FIRST, or numbers."),
			"syndrome":    oneOrList(oneWord(syndromes...), math.MaxInt32).describedAs("Of acknowledgements."),
			"cm":          oneOrList(anyOf(textSchema()), math.MaxInt32).describedAs("Messages of connection management: " + strings.Join(messages[:], ", ") + ", or attribute IDs."),
			"qp":          hexadecimal(max24).describedAs("The destination's QP number."),
			"psn":         anyOf(schema{"type": "integer", "minimum": 0, "maximum": max24}, matching(fmt.Sprintf("%[1]s(?:-%[1]s)?", "(?:0x[0-9a-fA-F]+|[0-9]+)"))).describedAs("A packet sequence number or a range, 5-20."),
			"nth":         places.describedAs("Only the one at this place, or those of a list."),
			"every":       whole(1, 1<<40).describedAs("Only each so many-th."),
			"count":       whole(1, 1<<40).describedAs("Only the first so many."),
			"probability": share.describedAs("Only this share, at random."),
		}),
	}
}
