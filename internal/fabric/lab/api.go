package lab

import (
	"context"
	"fmt"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/internal/fabric/report"
)

// ownerRequests answers what the command that starts the lab asks, too.
func (s *Supervisor) ownerRequests() *control.Mux {
	mux := s.requests()
	methodStart.Handle(mux, s.start)
	methodRelease.Handle(mux, s.release)
	return mux
}

// requests answers what any command asks of the lab. Those who look at the lab
// and into its nodes may do so from when all is built, while nodes are still waited for: to
// see why, for instance, one does not become healthy. Requests that change the lab need one
// that is ready.
func (s *Supervisor) requests() *control.Mux {
	mux := new(control.Mux)
	methodInfo.Handle(mux, answer(s.info))
	methodDown.Handle(mux, s.takeDown)
	methodWait.Handle(mux, s.awaitOver)
	methodEvents.Handle(mux, s.events)
	methodWatch.Handle(mux, s.watchEvents)

	built := mux.When(s.checkBuilt)
	methodInspect.Handle(built, s.inspect)
	methodObserve.Handle(built, s.observe)
	methodExternals.Handle(built, s.inspectExternals)
	methodExec.Handle(built, s.exec)
	methodSignal.Handle(built, s.signal)
	methodAdmit.Handle(built, s.admit)
	methodCapture.Handle(built, s.capture)
	methodNodes.Handle(built, ofNodes(s, s.inspectNodes))
	methodAdapter.Handle(built, ofNodes(s, s.adapters))
	methodConnections.Handle(built, ofNodes(s, s.connections))
	methodLinks.Handle(built, s.showLinks)
	methodNames.Handle(built, answer(func() Names { return NamesOf(s.topology()) }))

	ready := mux.When(s.checkReady)
	methodRun.Handle(ready, s.runs.run)
	methodInterrupt.Handle(ready, s.runs.interruptRun)
	methodMiddles.Handle(ready, s.middles)
	methodRecall.Handle(ready, s.recall)
	methodLosses.Handle(ready, s.losses)
	methodAwait.Handle(ready, s.await)
	methodEnable.Handle(ready, s.enable)
	methodStanding.Handle(ready, answer(s.standingOf))
	methodApply.Handle(ready, s.apply)
	methodChange.Handle(ready, s.change)
	methodSet.Handle(ready, s.set)
	methodReset.Handle(ready, s.reset)
	methodLink.Handle(ready, s.switchLink)
	methodVerify.Handle(ready, s.verifyLink)
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
	if s.head != nil {
		s.head.hosts.Announce = func(ctx context.Context, assignment string) error {
			return methodAnnounce.Call(ctx, r.Conn, assignment)
		}
	}
	if err := s.build(ctx, params, r.Files); err != nil {
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
	return s.machines.inspectExternals(ctx, s.topology())
}

// checkBuilt returns an error before the lab is built.
func (s *Supervisor) checkBuilt() error {
	if !s.standing().Present {
		return s.checkReady()
	}
	return nil
}

func (s *Supervisor) info() (info Info) {
	s.look(func(l *core.Lab) {
		standing := l.Standing()
		if !standing.Present {
			info = Info{Lab: s.name, State: Starting}
			return
		}
		topo := standing.Topology
		info = Info{Lab: s.name, State: stateOf(standing), Seed: topo.Seed, Nodes: len(topo.Nodes), Links: len(topo.Links), Up: s.Since().Seconds(), Labels: topo.Labels, Dilation: topo.Dilation}
		for i := range topo.Nodes {
			switch l.Node(topo.Nodes[i].Name).State {
			case nodeDown:
				info.Down++
			case nodePaused:
				info.Paused++
			}
		}
	})
	return info
}

// stateOf returns the state of a lab that can be looked at.
func stateOf(standing core.Standing) string {
	if standing.Ready {
		return Ready
	}
	return Starting
}

func (s *Supervisor) inspect(ctx context.Context, _ *control.Request, _ control.None) (*Inspection, error) {
	var standing core.Standing
	var states []core.LinkStatus
	s.look(func(l *core.Lab) { standing, states = l.Standing(), linkStates(l) })
	topo := standing.Topology
	links, err := s.linkFigures(ctx, topo, states, nil)
	if err != nil {
		return nil, err
	}
	externals, err := s.machines.inspectExternals(ctx, topo)
	if err != nil {
		return nil, err
	}
	return &Inspection{Lab: s.name, Labels: topo.Labels, Seed: topo.Seed, Dilation: topo.Dilation, State: stateOf(standing), Nodes: s.inspectAll(ctx, topo), Links: links, Externals: externals, Unfinished: standing.Unfinished}, nil
}

func (s *Supervisor) exec(ctx context.Context, r *control.Request, params execParams) (status int, err error) {
	agent, err := s.agent(params.Node)
	if err != nil {
		return 0, err
	}
	params.Command.ID = s.commandID(r.Conn, params.Command.ID)
	return agent.Exec(ctx, params.Command, r.Files...)
}

func (s *Supervisor) signal(ctx context.Context, r *control.Request, params signalParams) error {
	agent, err := s.agent(params.Node)
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
	return fmt.Sprintf("%d/%s", s.clients.number(conn), id)
}
