package words

import (
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/topology"
)

// Between names those who take part in a workload.
func Between(w *report.Workload) string {
	switch {
	case w.From != "" || w.To != "":
		return w.From + " -> " + w.To
	case len(w.Nodes) == 1:
		return w.Nodes[0]
	case served(w) && len(w.Nodes) == 2:
		return w.Nodes[1] + " -> " + w.Nodes[0]
	case served(w):
		return Plural(len(w.Nodes)-1, "client") + " -> " + w.Nodes[0]
	case w.Operation == string(topology.Program):
		return Plural(len(w.Nodes), "node")
	case w.Pattern != "":
		return w.Pattern + " of " + strconv.Itoa(len(w.Nodes))
	default:
		return w.Operation + " of " + strconv.Itoa(len(w.Nodes))
	}
}

// served reports whether w is programs of which the first node's serves the others.
func served(w *report.Workload) bool { return len(w.Programs) > 1 && w.Programs[0].Server }

// programName returns the name of a program, also of one that a shell runs, with variables
// in front.
func programName(p *report.Program) string {
	words := p.Command
	if len(words) == 3 && words[0] == "sh" && words[1] == "-c" {
		words = strings.Fields(words[2])
	}
	for i, word := range words {
		if i == len(words)-1 || !strings.Contains(word, "=") {
			return filepath.Base(word)
		}
	}
	return string(topology.Program)
}

// Operation returns a workload's operation, the size of its messages and the number of
// connections of each flow.
func Operation(w *report.Workload) string {
	text := w.Operation
	if served(w) {
		text = programName(&w.Programs[1]) // it is known by its client
	}
	if w.Measure == "latency" {
		text += "-lat" // as perftest's programs are named
	}
	switch {
	case w.Operation == string(topology.Program) || w.Operation == string(topology.Connect):
	case len(w.Steps) > 1:
		text += " sweep"
	case w.Mixed:
		text += " mix up to " + Size(w.Size)
	case w.Size > 0:
		text += " " + Size(w.Size)
	}
	if w.QPs > 1 {
		text += " x" + strconv.Itoa(w.QPs)
	}
	return text
}

// Speed returns the throughput of a workload, or the connections a second of one that moves
// no payload.
func Speed(w *report.Workload) string {
	switch {
	case w.Operation == string(topology.Connect) && w.Seconds > 0 && w.Connections > 0:
		return Significant(float64(w.Connections)/w.Seconds) + " conn/s"
	case w.Operation == string(topology.Program) && w.Gbps == 0 && w.MessageRate > 0:
		return Significant(w.MessageRate) + " msg/s"
	case w.Operation == string(topology.Program) && w.Gbps == 0:
		return "-"
	case w.Messages > 0 && w.Moves(), w.Operation == string(topology.Program):
		return Rate(w.Gbps)
	default:
		return "-"
	}
}

// Outcome returns how a workload ended, in two words.
func Outcome(w *report.Workload) string {
	switch {
	case w.ExitStatus != nil && *w.ExitStatus != 0:
		return "exit " + strconv.Itoa(*w.ExitStatus)
	case w.Errors == 1:
		return "1 error"
	case w.Errors > 0:
		return Count(w.Errors) + " errors"
	case w.Error != "":
		return "failed"
	case w.Verified:
		return "verified"
	case w.ExitStatus != nil:
		return "exit 0"
	default:
		return "no errors"
	}
}

// noticed is from how many seconds without a completion on a report mentions them.
const noticed = 0.1

// WorkloadStory returns what there is to say of a workload besides its figures; "" if nothing.
func WorkloadStory(w *report.Workload) string {
	var parts []string
	if w.Operation == string(topology.Connect) || w.Reconnects > 0 || w.Retried > 0 {
		parts = append(parts, Count(w.Connections)+" connections were made")
	}
	if w.Reconnects > 0 {
		parts = append(parts, Count(w.Reconnects)+" of them in place of failed ones")
	}
	if w.Retried > 0 {
		parts = append(parts, Count(w.Retried)+" messages were posted again")
	}
	if w.Recovered >= noticed || w.Reconnects > 0 {
		text := "nothing completed for " + Duration(w.Recovered*1e6) + " at the longest"
		if all := w.Ended - w.Began; all >= w.Seconds+noticed { // connecting, and what came to nothing at the end, are not in its seconds
			text += ", of the " + Duration(all*1e6) + " from its start to its end"
		}
		parts = append(parts, text)
	}
	for i := range w.Programs {
		if n := &w.Programs[i]; n.Ended != "" {
			parts = append(parts, "the program of "+n.Node+" was ended "+n.Ended)
		}
	}
	if w.Fairness > 0 && len(w.Flows) > 1 {
		parts = append(parts, "fairness "+Significant(w.Fairness)+" (Jain's index; 1 is even)")
	}
	return strings.Join(parts, ", ")
}
