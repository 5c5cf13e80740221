package simulate

import (
	"github.com/ndklab/ndklab/internal/fabric/dataplane"
	"github.com/ndklab/ndklab/internal/fabric/impair"
	"github.com/ndklab/ndklab/internal/node/workload"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/provider/clock"
)

// A shard is some of the nodes, with what their hosts share. In a window (windows.go) it belongs to the goroutine that runs its
// clock, with the lives of its hosts, the buffers of its nodes, and the ends of wires there.
type shard struct {
	network  *network
	clock    *clock.Virtual
	ways     map[roce.Flow]*way // from its hosts, found since links and routes last changed; nil: there is none
	frames   frames
	batch    []roce.Received   // what a port hands over just now
	payloads workload.Payloads // of all hosts
	identity impair.Identity   // of the packet that a wire decides on
	sealer   roce.Sealer
	verifier roce.Verifier
}

// handed has the shard that a frame has left get an idle one in its place, if the other has one. Otherwise shards that are sent
// more data than they send would have ever more idle ones, and the others would make new ones.
func handed(from, to dataplane.Owner[*frame], f *frame) {
	from.(*shard).frames.replace(f, &to.(*shard).frames)
}
