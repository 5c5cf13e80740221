package lab

import (
	"context"

	"github.com/ndklab/ndklab/topology"
)

// carrierFor returns what impairs a link whenever it is impaired.
func (d *linkDriver) carrierFor(spec *topology.Link) carrier {
	if spec.Engine == topology.Netem {
		return netemCarrier{}
	}
	return linkemCarrier{&d.engine, d.seed}
}

// A carrier makes impairments happen to the packets of links. A link that has no
// carrier is plain: the kernel hands packets from one middle to the other, and
// join and part begin and end that.
//
// A carrier's methods are called with labLink.acting held, but for idle, and change of the link its
// joined alone, by join and part. A link may be disconnected meanwhile: then it is not joined, nor joined by them.
type carrier interface {
	// attach takes a link over, to do to its packets what is asked, which the
	// engine can do (topology.Engine). The kernel may have joined it.
	attach(l *labLink, asked [2]topology.Impairment) error
	// set changes what is done in one direction.
	set(l *labLink, direction int, to topology.Impairment) error
	// idle waits until no packet is on its way on a link of that name which is not impaired.
	idle(ctx context.Context, name string) error
	// detach ends what attach began: packets on their way arrive, and the kernel has
	// joined the link again, if it is connected. If that takes too long, the error is
	// context.DeadlineExceeded and the carrier has the link as before.
	detach(l *labLink) error
	// abandon ends what attach began at once, on a link of which an end is about to
	// vanish or has. Packets on their way are lost.
	abandon(l *labLink) error
	// needsJoin says whether the kernel is to hand packets on also while the carrier
	// has the link.
	needsJoin() bool
}
