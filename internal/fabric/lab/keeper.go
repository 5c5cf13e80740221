package lab

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/capture"
	"github.com/ndklab/ndklab/internal/fabric/lab/link"
	"github.com/ndklab/ndklab/topology"
)

// This file keeps the last packets of links over several hosts. A command's Memory cannot have the sockets of other hosts, so that
// the part at each host has those of its links, from when a command first asks for it, up to the lab's end.

// methodKeep has a part begin to keep packets, if it does not. methodKept has it write to the file what it has, each a
// capture.Remembered as JSON.
var (
	methodKeep = control.NewProcedure[control.None]("keep")
	methodKept = control.NewProcedure[control.None]("kept").WithFiles(1, 1)
)

// A keeper has the last packets that the ends at a host have sent into links.
type keeper struct {
	mu     sync.Mutex // guards what follows, and methods of recents
	begun  bool
	byLink map[int][]*capture.Recent // by number
}

// remember has the supervisor's machine keep nothing: the sockets go to the command.
func (m *machine) remember(context.Context) (afar bool, err error) { return false, nil }

func (m *machine) recall(context.Context, *topology.Topology, *os.File) error {
	return control.Errorf(control.Usage, "the packets of links are kept by the command that asks for it")
}

// remember has all parts keep packets.
func (h *head) remember(ctx context.Context) (afar bool, err error) {
	return true, h.each(ctx, h.parts, func(ctx context.Context, p *farPart) error { return methodKeep.Call(ctx, p.Conn, nil) })
}

// recall writes what the parts have, with times of the lab's time line, in the order of the topology and of time.
func (h *head) recall(ctx context.Context, topo *topology.Topology, to *os.File) error {
	var mu sync.Mutex // guards all
	var all []capture.Remembered
	err := h.each(ctx, h.parts, func(ctx context.Context, p *farPart) error {
		stream, err := ask(ctx, p, methodKept, nil)
		if err != nil {
			return err
		}
		defer stream.end()
		clock := p.Clock()
		for from := json.NewDecoder(stream); ; {
			var m capture.Remembered
			if err := from.Decode(&m); err == io.EOF {
				return stream.wait()
			} else if err != nil {
				return stream.why(err)
			}
			m.Correct(p.Name, clock)
			mu.Lock()
			all = append(all, m)
			mu.Unlock()
		}
	})
	if err != nil {
		return err
	}
	order := map[string]int{}
	for i := range topo.Links {
		for end, e := range topo.Links[i].Endpoints {
			order[e.String()] = 2*i + end
		}
	}
	slices.SortFunc(all, func(a, b capture.Remembered) int { return cmp.Compare(order[a.Name], order[b.Name]) })
	return capture.WriteRemembered(to, all)
}

// recall answers methodRecall.
func (a *linkAPI) recall(ctx context.Context, r *control.Request, _ control.None) error {
	return a.machines.recall(ctx, a.topology(), r.Files[0])
}

// keep answers methodKeep.
func (p *part) keep(ctx context.Context, _ *control.Request, _ control.None) error {
	k := &p.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.begun {
		return nil
	}
	type at struct{ link, end int }
	var ends []at
	topo := p.topo.Load()
	for i := range topo.Links {
		l := &topo.Links[i]
		for end, e := range l.Endpoints {
			if e.External() { // its node is there
				e = l.Endpoints[1-end]
			}
			if !p.links.isFar(e.Node) && len(ends) < 2*rememberedLinks {
				ends = append(ends, at{l.Number, end})
			}
		}
	}
	recents := make([]*capture.Recent, len(ends))
	err := parallel(ctx, len(ends), len(ends), func(_ context.Context, i int) error {
		socket, err := capture.RecentSocket()
		if err != nil {
			return err
		}
		of := ends[i]
		recents[i], err = capture.OpenRecent(socket, link.MiddleIndex(of.link, of.end), p.linkOf(of.link).Endpoints[of.end].String(), memoryFor(len(ends)))
		return err
	})
	if err != nil {
		closeAll(slices.DeleteFunc(recents, func(r *capture.Recent) bool { return r == nil }))
		return err
	}
	k.begun, k.byLink = true, map[int][]*capture.Recent{}
	for i, of := range ends {
		k.byLink[of.link] = append(k.byLink[of.link], recents[i])
	}
	go k.turn()
	return nil
}

// turn lets old packets make room, up to the end of the part.
func (k *keeper) turn() {
	for range time.Tick(turnTime) {
		k.each(func(r *capture.Recent) { r.Turn() })
	}
}

func (k *keeper) each(do func(*capture.Recent)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, all := range k.byLink {
		for _, r := range all {
			do(r)
		}
	}
}

// bind goes on with the packets of a link whose interfaces have come again.
func (k *keeper) bind(link int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.byLink[link] {
		// Where there is no interface, another node is down.
		_ = r.Bind()
	}
}

// kept answers methodKept.
func (p *part) kept(ctx context.Context, r *control.Request, _ control.None) error {
	to := r.Files[0]
	defer context.AfterFunc(ctx, func() { _ = to.SetDeadline(time.Unix(1, 0)) })() // it fails on one that is closed
	out := json.NewEncoder(to)
	var problems error
	p.keeper.each(func(recent *capture.Recent) {
		if problems != nil {
			return
		}
		m, err := recent.Remembered()
		if err == nil {
			err = out.Encode(m)
		}
		problems = err
	})
	if problems != nil {
		return fmt.Errorf("packets that were kept: %w", problems)
	}
	return nil
}
