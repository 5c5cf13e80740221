package hosts

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"

	"github.com/ndklab/ndklab/internal/control"
)

// NoLab is the name that a worker has its part started with if the host is only visited.
const NoLab = ""

// visitors bounds how many hosts are visited at once.
const visitors = 16

// A Visited is a host that was visited, or is not there.
type Visited struct {
	Name string
	Err  error // why it did not come, or what ask returned
}

// Visit has the hosts of a spec come without a lab, calls ask for each, for several at once, and has them go. Hosts come each by itself
// where that can be, so that one that does not come keeps no other from it. The error is that of all of them.
func Visit(ctx context.Context, spec Spec, ask func(context.Context, *Host) error) ([]Visited, error) {
	groups, err := spec.apart(os.Getenv)
	if err != nil {
		return nil, err
	}
	found := make([][]Visited, len(groups))
	failed := make([]error, len(groups))
	var all sync.WaitGroup
	free := make(chan struct{}, visitors)
	for i, group := range groups {
		all.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			found[i], failed[i] = group.visit(ctx, ask)
		})
	}
	all.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var visited []Visited
	for i, group := range groups {
		switch {
		case failed[i] == nil:
			visited = append(visited, found[i]...)
		case len(group.Names) == 1:
			visited = append(visited, Visited{group.Names[0], failed[i]})
		default:
			return nil, failed[i]
		}
	}
	return visited, nil
}

// apart returns specs of one host each, or the spec itself where its hosts come together.
func (s Spec) apart(getenv func(string) string) ([]Spec, error) {
	switch s.Kind {
	case Local, Allocate:
		return []Spec{s}, nil
	case Task, Kubernetes:
		return nil, control.Errorf(control.Usage, "--hosts %s is for `ndklab run`, expected slurm, local:N or names of hosts", s)
	case Slurm:
		names, err := jobHosts(getenv)
		if err != nil {
			return nil, err
		}
		s.Names = names
	}
	all := make([]Spec, len(s.Names))
	for i, name := range s.Names {
		all[i] = s
		all[i].Names = []string{name}
	}
	return all, nil
}

// visit is Visit of hosts that come together.
func (s Spec) visit(ctx context.Context, ask func(context.Context, *Host) error) ([]Visited, error) {
	l, err := NewLaunch(s, NoLab, io.Discard) // errors have its last lines
	if err != nil {
		return nil, err
	}
	defer l.End()
	h, err := FromFiles(l.listener, l.theirs, func(*Host) control.Handler { return new(control.Mux).Serve })
	if err != nil {
		return nil, err
	}
	defer h.End()
	come, err := h.Await(ctx)
	if err != nil {
		return nil, err
	}
	visited := make([]Visited, len(come))
	var all sync.WaitGroup
	for i, host := range come {
		all.Go(func() {
			err := ask(ctx, host)
			if errors.Is(err, control.ErrClosed) {
				loss := <-h.Lost()
				h.lost <- loss // for the others
				err = loss.Err
			}
			visited[i] = Visited{host.Name, err}
		})
	}
	all.Wait()
	return visited, nil
}
