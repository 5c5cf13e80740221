package differential

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"time"
)

// A trial is a topology and its workloads, as a number draws them.
type trial struct {
	number uint64
	text   string // the file
	rate   int    // of its slowest link, Mb/s
}

// Values that trials are drawn from. The rates leave a busy machine enough time for each packet.
var (
	rates  = []int{5, 10, 20, 50, 100, 200} // Mb/s
	losses = []string{"0%", "0%", "0.5%", "2%"}
	queues = []string{"", "", ", queue: 100KiB", ", queue: 1MiB", ", queue: 8MiB"}
	sizes  = []int{64, 1 << 10, 16 << 10, 64 << 10, 256 << 10}
	depths = []int{1, 2, 8, 32}
)

const (
	shortest, longest = 0.0002, 0.02 // s of delay, one way
	lasting           = 0.5          // s that a workload takes, about, where nothing is lost
	fewest, most      = 8, 1000      // messages of a workload
)

// draw makes the trial of a number.
func draw(number uint64) trial {
	r := rand.New(rand.NewPCG(number, 0x7477696E))
	hosts := 2 + r.IntN(3)
	var links []string
	slowest := math.MaxInt
	link := func(from, to string) {
		rate := rates[r.IntN(len(rates))]
		slowest = min(slowest, rate)
		delay := shortest * math.Pow(longest/shortest, r.Float64())
		links = append(links, fmt.Sprintf("    - {endpoints: [%q, %q], rate: %dmbit, delay: %.0fus, loss: %s%s}",
			from, to, rate, delay*1e6, losses[r.IntN(len(losses))], queues[r.IntN(len(queues))]))
	}
	nodes := "h0: , h1: "
	if hosts == 2 && r.IntN(2) == 0 {
		link("h0:eth0", "h1:eth0")
	} else {
		nodes = "s: {kind: switch}"
		for i := range hosts {
			nodes += fmt.Sprintf(", h%d: ", i)
			link(fmt.Sprintf("h%d:eth0", i), fmt.Sprintf("s:p%d", i))
		}
	}
	var workloads []string
	for i := range 1 + r.IntN(2) {
		// No matter of microseconds then decides whose packets are first in a queue.
		start := time.Duration(i) * 100 * time.Millisecond
		to := r.IntN(hosts)
		from := (to + 1 + r.IntN(hosts-1)) % hosts
		workloads = append(workloads, fmt.Sprintf("  - {name: w%d, from: h%d, to: h%d, start: %v, %s}", i, from, to, start, operation(r, slowest)))
	}
	text := fmt.Sprintf("name: differential-%d\nseed: %d\ntopology:\n%s  nodes: {%s}\n  links:\n%s\nworkloads:\n%s\n",
		number, number, buffers(), nodes, strings.Join(links, "\n"), strings.Join(workloads, "\n"))
	return trial{number, text, slowest}
}

// buffers returns the setting of receive buffers that every kernel grants: it grants root
// the default, and an ordinary user this much.
func buffers() string {
	if os.Geteuid() == 0 {
		return ""
	}
	return "  defaults: {adapter: {receive_buffer: 128KiB}}\n"
}

// operation draws what a workload does, in keys of the file. rate is that of the slowest
// link, in Mb/s.
func operation(r *rand.Rand, rate int) string {
	if r.IntN(8) == 0 {
		return "operation: connect, depth: 1, count: 20"
	}
	size, depth, qps := sizes[r.IntN(len(sizes))], depths[r.IntN(len(depths))], 1+r.IntN(4)
	count := min(max(int(lasting*float64(rate)*1e6/8/float64(size)), fewest), most)
	return fmt.Sprintf("operation: %s, size: %dB, depth: %d, qps: %d, count: %d, verify: true",
		[]string{"write", "read", "send"}[r.IntN(3)], size, depth, qps, count)
}
