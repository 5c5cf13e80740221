package lab

import (
	"context"
	"errors"
	"fmt"
	"log"
	"slices"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/impair"
	"github.com/ndklab/ndklab/internal/fabric/lab/link"
	"github.com/ndklab/ndklab/internal/fabric/linkreport"
	"github.com/ndklab/ndklab/internal/fabric/netem"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/topology"
	"golang.org/x/sys/unix"
)

// netemCarrier has the kernel's netem impair links, while the kernel hands the
// packets on. The links have netem from the beginning, and keep it when it has
// nothing to do, so that no packet is lost by putting it there.
type netemCarrier struct{}

func (netemCarrier) needsJoin() bool { return true }

func (c netemCarrier) attach(l *labLink, asked [2]topology.Impairment) error {
	for d, to := range asked {
		if err := c.set(l, d, to); err != nil {
			return err
		}
	}
	return nil
}

func (netemCarrier) set(l *labLink, direction int, to topology.Impairment) error {
	if err := setNetem(l.spec, direction, to); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lossy[direction] = l.lossy[direction] || to.Loss.Rate > 0
	return nil
}

// idle need not wait: the kernel goes on to hand out what netem has.
func (netemCarrier) idle(context.Context, string) error { return nil }

func (netemCarrier) detach(l *labLink) error {
	for d := range l.spec.Directions {
		if err := setNetem(l.spec, d, topology.Impairment{}); err != nil {
			return err
		}
	}
	return nil
}

// abandon leaves what remains of the link as it is: attach says anew what is to be
// done.
func (netemCarrier) abandon(*labLink) error { return nil }

// checkEngines says, before anything is made or changed of the lab, if a link wants
// netem and the kernel has none. It tries it in the lab's own namespace.
func checkEngines(topo *topology.Topology) error {
	wants := slices.IndexFunc(topo.Links, func(l topology.Link) bool { return l.Engine == topology.Netem })
	if wants < 0 {
		return nil
	}
	err := netem.Probe(loopback)
	if !errors.Is(err, netem.ErrMissing) {
		return err
	}
	l := &topo.Links[wants]
	where := ""
	if l.EngineAt != (topology.Place{}) {
		where = l.EngineAt.String() + ": "
	}
	return control.Errorf(control.Unable, "%slink %s to %s: engine: netem: %v; remedy: engine: linkem, or a kernel that has it",
		where, l.Endpoints[0], l.Endpoints[1], err)
}

// loopback is the interface index of lo in every network namespace.
const loopback = 1

// addNetem gives the new middle at one end of a link netem if the link wants it.
func addNetem(spec *topology.Link, end int) error {
	if spec.Engine != topology.Netem {
		return nil
	}
	var processors unix.CPUSet
	if err := unix.SchedGetaffinity(0, &processors); err != nil {
		return fmt.Errorf("processors: %w", err)
	}
	if err := setNetem(spec, 1-end, topology.Impairment{}); err != nil {
		return err
	}
	if err := netem.KeepOrder(link.Middle(spec.Number, end), pick(&processors, 2*spec.Number+end)); err != nil {
		log.Printf("link %s: netem: packets may overtake each other between processors: %v", spec.Endpoints[0], err)
	}
	return nil
}

// pick is a processor out of a set, another for each of consecutive numbers.
func pick(processors *unix.CPUSet, number int) int {
	number %= processors.Count()
	processor := 0
	for ; !processors.IsSet(processor) || number > 0; processor++ {
		if processors.IsSet(processor) {
			number--
		}
	}
	return processor
}

// setNetem has netem do something to what is sent in a direction, which leaves by
// the middle at its far end.
func setNetem(spec *topology.Link, direction int, to topology.Impairment) error {
	return netem.Set(netem.Interface{
		Index: link.MiddleIndex(spec.Number, 1-direction), MTU: spec.MTU, Wire: !spec.Offload,
	}, to)
}

// reportNetem adds to a report what is known of a direction that netem impairs:
// what is asked of it at present, and the packets that it dropped. Those are lost
// as was asked, if loss ever was; netem does not tell them from those that found its
// queue full.
func reportNetem(d *report.Direction, present topology.Impairment, kernel link.Counters, lossy bool) {
	d.Asked = linkreport.Asked(&impair.Asked{Delay: present.Delay, Jitter: present.Jitter.Spread, Loss: present.Loss.Rate, Burst: present.Loss.Burst, Rate: present.Rate})
	d.LostBy.Kernel -= kernel.Queue
	if lossy {
		d.Dropped += kernel.Queue
		d.Lost -= kernel.Queue
	} else {
		d.LostBy.Queue += kernel.Queue
	}
}
