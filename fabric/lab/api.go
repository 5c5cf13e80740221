package lab

import (
	"context"
	"fmt"

	"github.com/ndklab/ndklab/fabric/report"
	"github.com/ndklab/ndklab/internal/control"
)

// handleOwner answers the command that starts the lab.
func (s *Supervisor) handleOwner(ctx context.Context, r *control.Request) (any, error) {
	mux := s.now().requests()
	methodStart.Handle(mux, s.start)
	methodRelease.Handle(mux, s.release)
	return mux.Serve(ctx, r)
}

// handle answers any command.
func (s *Supervisor) handle(ctx context.Context, r *control.Request) (any, error) {
	return s.now().requests().Serve(ctx, r)
}

// requests answers what any command asks of the lab that s sees. Those who look at the lab
// and into its nodes may do so from when all is built, while nodes are still waited for: to
// see why, for instance, one does not become healthy. What changes it is for one that is
// ready.
func (s *Supervisor) requests() *control.Mux {
	mux := new(control.Mux)
	methodInfo.Handle(mux, answer(s.info))
	methodDown.Handle(mux, s.takeDown)
	methodWait.Handle(mux, s.awaitOver)
	methodEvents.Handle(mux, s.events)
	methodWatch.Handle(mux, s.watchEvents)

	built := mux.When(s.checkBuilt)
	methodInspect.Handle(built, s.inspect)
	methodExternals.Handle(built, s.inspectExternals)
	methodExec.Handle(built, s.exec)
	methodSignal.Handle(built, s.signal)
	methodAdmit.Handle(built, s.admit)
	methodCapture.Handle(built, s.capture)
	methodNodes.Handle(built, ofNodes(s, inspect))
	methodAdapter.Handle(built, ofNodes(s, adapters))
	methodConnections.Handle(built, ofNodes(s, s.connections))
	methodLinks.Handle(built, s.showLinks)
	methodNames.Handle(built, answer(func() Names { return NamesOf(s.topo) }))

	ready := mux.When(s.checkReady)
	methodRun.Handle(ready, s.run)
	methodInterrupt.Handle(ready, s.interruptRun)
	methodMiddles.Handle(ready, s.middles)
	methodLosses.Handle(ready, s.losses)
	methodAwait.Handle(ready, s.await)
	methodEnable.Handle(ready, s.enable)
	methodStanding.Handle(ready, answer(s.standing))
	methodApply.Handle(ready, s.apply)
	methodChange.Handle(ready, s.change)
	methodSet.Handle(ready, s.set)
	methodReset.Handle(ready, s.reset)
	methodLink.Handle(ready, s.carrier)
	methodVerify.Handle(ready, s.verify)
	methodPartition.Handle(ready, s.partition)
	methodHeal.Handle(ready, s.heal)
	return mux
}

// answer is a handler that answers with what get returns.
func answer[T any](get func() T) func(context.Context, *control.Request, control.None) (T, error) {
	return func(context.Context, *control.Request, control.None) (T, error) { return get(), nil }
}

func (s *Supervisor) release(context.Context, *control.Request, control.None) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.released = true
	return nil
}

// start builds the lab, or ends it with the reason why it could not.
func (s *Supervisor) start(ctx context.Context, r *control.Request, params startParams) (Info, error) {
	s.watch(r.Conn, 0)
	if err := s.build(ctx, params, r.Files); err != nil {
		err = fmt.Errorf("lab %s: %w", s.name, err)
		s.end(control.AsError(err))
		return Info{}, err
	}
	return s.info(), nil
}

func (s *Supervisor) takeDown(context.Context, *control.Request, control.None) error {
	s.end(control.Errorf(control.Usage, "lab %s was taken down", s.name))
	return nil
}

func (s *Supervisor) awaitOver(ctx context.Context, _ *control.Request, _ control.None) error {
	select {
	case <-s.over:
		return s.reason
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Supervisor) events(_ context.Context, _ *control.Request, params eventsParams) (eventsAnswer, error) {
	events, next := s.history.all(params.Since)
	return eventsAnswer{events, next}, nil
}

func (s *Supervisor) watchEvents(_ context.Context, r *control.Request, params watchParams) error {
	s.watch(r.Conn, params.From)
	return nil
}

func (s *Supervisor) inspectExternals(ctx context.Context, _ *control.Request, _ control.None) ([]report.External, error) {
	return s.InspectExternals(ctx)
}

// checkBuilt returns an error before the lab is built.
func (s *Supervisor) checkBuilt() error {
	if s.present.Load() == nil {
		return s.checkReady()
	}
	return nil
}

func (s *Supervisor) checkReady() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ready.IsZero() {
		return control.Errorf(control.Usage, "lab %s is still starting", s.name)
	}
	return nil
}

func (s *Supervisor) info() Info {
	if s.present.Load() == nil {
		return Info{Lab: s.name, State: Starting}
	}
	info := Info{Lab: s.name, State: Ready, Seed: s.topo.Seed, Nodes: len(s.topo.Nodes), Links: len(s.links), Up: s.Since().Seconds(), Labels: s.topo.Labels}
	if s.checkReady() != nil {
		info.State = Starting
	}
	for _, n := range s.nodes {
		switch n.status().State {
		case nodeDown:
			info.Down++
		case nodePaused:
			info.Paused++
		}
	}
	return info
}

func (s *Supervisor) inspect(ctx context.Context, _ *control.Request, _ control.None) (*Inspection, error) {
	links, err := s.InspectLinks(ctx)
	if err != nil {
		return nil, err
	}
	externals, err := s.InspectExternals(ctx)
	if err != nil {
		return nil, err
	}
	state := Ready
	if s.checkReady() != nil {
		state = Starting
	}
	return &Inspection{Lab: s.name, Labels: s.topo.Labels, Seed: s.topo.Seed, State: state, Nodes: s.InspectNodes(ctx), Links: links, Externals: externals, Unfinished: s.standing().Unfinished}, nil
}

func (s *Supervisor) exec(ctx context.Context, r *control.Request, params execParams) (status int, err error) {
	agent, err := s.Node(params.Node)
	if err != nil {
		return 0, err
	}
	params.Command.ID = s.commandID(r.Conn, params.Command.ID)
	return agent.Exec(ctx, params.Command, r.Files...)
}

func (s *Supervisor) signal(ctx context.Context, r *control.Request, params signalParams) error {
	agent, err := s.Node(params.Node)
	if err != nil {
		return err
	}
	return agent.Signal(ctx, s.commandID(r.Conn, params.ID), params.Signal)
}

// commandID makes the name that a client gave a command unique in the lab. One
// without a name is given one by the agent.
func (s *Supervisor) commandID(conn *control.Conn, id string) string {
	if id == "" {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	number := 0 // of a client that has just gone, and with it its commands
	if c := s.clients[conn]; c != nil {
		number = c.number
	}
	return fmt.Sprintf("%d/%s", number, id)
}
