package report

import (
	"github.com/ndklab/ndklab/internal/fabric/bufferstats"
	"github.com/ndklab/ndklab/internal/fabric/impair"
	"github.com/ndklab/ndklab/internal/histogram"
)

// A Link is a link's state and what it did.
type Link struct {
	Endpoints  [2]string    `json:"endpoints"`
	Engine     string       `json:"engine"` // plain, linkem or netem; simulated
	State      string       `json:"state"`  // up or down
	Directions [2]Direction `json:"directions"`
	// Hosts are those of the endpoints, by their names; null unless the link crosses from one to another.
	Hosts *[2]string `json:"hosts,omitempty"`
}

// A Direction counts what happened to the packets that one endpoint sent.
type Direction struct {
	From     string  `json:"from"`    // endpoint
	Packets  uint64  `json:"packets"` // wire packets that entered the link
	Bytes    uint64  `json:"bytes"`   // of those, from the Ethernet header on
	Dropped  uint64  `json:"dropped"` // of those, by asked-for loss
	Lost     uint64  `json:"lost"`    // of those, for any other reason
	Asked    Quality `json:"asked"`   // the mean over the packets that met settings
	Achieved Quality `json:"achieved"`
	// Set holds what the present settings ask for; null if they are not known.
	Set *Quality `json:"set,omitempty"`

	LostBy     LostBy    `json:"lost_by"`          // Lost, by reason
	Duplicated uint64    `json:"duplicated"`       // copies made
	Reordered  uint64    `json:"reordered"`        // packets that overtook others
	Corrupted  uint64    `json:"corrupted"`        // packets
	Marked     uint64    `json:"marked"`           // packets, with Congestion Experienced
	Faulted    uint64    `json:"faulted"`          // packets that met a fault
	QueuePeak  *uint64   `json:"queue_peak"`       // bytes that waited at once for the rate; null if it is not measured
	Lateness   *Lateness `json:"lateness_us"`      // null if it is not measured
	Delays     []Delays  `json:"delays,omitempty"` // the histogram of achieved delay, in ascending order; null if it is not measured
	// DelayBars has achieved delay in nanoseconds, by bounds that who observes the lab has asked for;
	// null but there, and if it is not measured.
	DelayBars *histogram.Bars `json:"delay_bars_ns,omitempty"`

	// Pauses says how long the endpoint was kept from sending packets of a class by the one that they are for, where the link
	// engine carries the endpoint's node; null but for who observes the lab, who finds those of hosts at their nodes.
	Pauses []bufferstats.ClassPause `json:"pauses,omitempty"`

	Replayed *impair.Replayed `json:"replayed,omitempty"` // null unless a log is replayed
	Overruns []Overrun        `json:"overrun,omitempty"`  // where the machine did not keep up
	Settings []string         `json:"settings,omitempty"` // the present ones, as "ndklab link set" takes them
}

// LostBy counts packets that were lost other than by asked-for loss, by reason.
type LostBy struct {
	Queue   uint64 `json:"queue"`   // no room before the direction's rate
	Down    uint64 `json:"down"`    // the link was down
	Cut     uint64 `json:"cut"`     // the direction was cut, by cut or flap
	Fault   uint64 `json:"fault"`   // a fault that drops
	Overrun uint64 `json:"overrun"` // the link engine could not keep up, or had no memory left
	Kernel  uint64 `json:"kernel"`  // by the kernel while the link was plain: it could not keep up, or an end was down
}

// Delays counts the packets that were delayed by FromUS microseconds and more, but less
// than the next bar's. The first bar has those below it, too, and the last those above.
type Delays struct {
	FromUS  float64 `json:"from_us"`
	Packets uint64  `json:"packets"`
}

// Lateness says how much later than asked packets left the link, in microseconds.
type Lateness struct {
	Min     float64 `json:"min"`
	P10     float64 `json:"p10"`
	P50     float64 `json:"p50"`
	P99     float64 `json:"p99"`
	Packets uint64  `json:"packets"`        // that left
	Late    []Late  `json:"late,omitempty"` // those that left later than the link tolerates
}

// Late counts the packets that left later than a limit.
type Late struct {
	LimitUS   float64 `json:"limit_us"`
	Packets   uint64  `json:"packets"`
	Tolerated float64 `json:"tolerated"` // share of the packets that left
}

// An Overrun is a figure that left a link's tolerance because the machine could
// not keep up.
type Overrun struct {
	Figure    string `json:"figure"`    // "median delay"
	Tolerated string `json:"tolerated"` // "up to 1ms late"
	Got       string `json:"got"`       // "2.31 ms late"
	Reason    string `json:"reason"`
	Remedy    string `json:"remedy"`
	Allowed   bool   `json:"allowed"` // by the file: the run has not failed
}

// Quality says how a direction treats packets; null is not asked for, or not
// measured. Settings that changed during the run are averaged over the packets
// that met them.
type Quality struct {
	DelayUS   *float64 `json:"delay_us"`  // one way; achieved: median
	JitterUS  *float64 `json:"jitter_us"` // achieved: the spread whose distribution has the range between the 1st and 99th percentile of delay; without jitter half of that range
	Loss      *float64 `json:"loss"`      // fraction of packets
	RateGbps  *float64 `json:"rate_gbps"` // achieved: over the busiest 100 ms
	Burst     *float64 `json:"burst"`     // packets lost in a row, mean
	Duplicate *float64 `json:"duplicate"` // fraction of packets, as are those that follow
	Reorder   *float64 `json:"reorder"`
	Corrupt   *float64 `json:"corrupt"`
	Marked    *float64 `json:"marked"` // achieved alone
}

// An External is a link's end outside the lab, in inspect only. Its frames are
// counted that crossed its sockets.
type External struct {
	Endpoint  string   `json:"endpoint"`       // external:NAME
	MTU       int      `json:"mtu"`            // bytes of IP packet
	Addresses []string `json:"addresses"`      // that the lab expects there, CIDR form
	Host      string   `json:"host,omitempty"` // of a lab over several: where the paths below are
	// Where interface NAME is: by its name for ip netns, which ordinary users'
	// labs have not, and as a file.
	Namespace     string `json:"namespace,omitempty"`
	NamespacePath string `json:"namespace_path"`
	Socket        string `json:"socket"`      // takes frames for the lab, one a datagram
	PeerSocket    string `json:"peer_socket"` // for who is outside to make: gets frames
	ToPeer        uint64 `json:"to_peer"`     // frames
	FromPeer      uint64 `json:"from_peer"`
	NoPeer        uint64 `json:"no_peer"` // for which there was no peer socket
	Lost          uint64 `json:"lost"`    // to a peer too slow, a frame too long, an interface that was down
}
