package lab

import (
	"context"
	"fmt"

	"github.com/ndklab/ndklab/control"
)

// handleOwner answers the command that starts the lab.
func (s *Supervisor) handleOwner(ctx context.Context, r *control.Request) (any, error) {
	switch r.Method {
	case methodStart:
		return s.start(ctx, r)
	case methodRelease:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.released = true
		return nil, nil
	}
	return s.handle(ctx, r)
}

// start builds the lab, or ends it with the reason why it could not.
func (s *Supervisor) start(ctx context.Context, r *control.Request) (any, error) {
	var params startParams
	if err := r.Decode(&params); err != nil {
		return nil, err
	}
	s.watch(r.Conn, 0)
	if err := s.build(ctx, params, r.Files); err != nil {
		err = fmt.Errorf("lab %s: %w", s.name, err)
		s.end(control.AsError(err))
		return nil, err
	}
	return s.info(), nil
}

// handle answers any command.
func (s *Supervisor) handle(ctx context.Context, r *control.Request) (any, error) {
	s = s.now()
	switch r.Method {
	case methodInfo:
		return s.info(), nil
	case methodDown:
		s.end(control.Errorf(control.Usage, "lab %s was taken down", s.name))
		return nil, nil
	case methodWait:
		select {
		case <-s.over:
			return nil, s.reason
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	case methodEvents:
		var params eventsParams
		if err := r.Decode(&params); err != nil {
			return nil, err
		}
		events, next := s.history.all(params.Since)
		return eventsAnswer{events, next}, nil
	case methodWatch:
		var params watchParams
		if err := r.Decode(&params); err != nil {
			return nil, err
		}
		s.watch(r.Conn, params.From)
		return nil, nil
	}
	if s.present.Load() == nil {
		return nil, s.checkReady()
	}
	if result, ok, err := s.handleLook(ctx, r); ok {
		return result, err
	}
	if err := s.checkReady(); err != nil {
		return nil, err
	}
	switch r.Method {
	case methodRun:
		return s.run(ctx, r)
	case methodInterrupt:
		return nil, s.interruptRun(r)
	case methodMiddles:
		return nil, s.middles(ctx, r)
	case methodLosses:
		return nil, s.losses(ctx, r)
	case methodAwait:
		return s.await(ctx, r)
	case methodEnable:
		return s.enable(ctx, r)
	case methodStanding:
		return s.standing(), nil
	case methodApply:
		return nil, s.apply(ctx, r)
	case methodChange:
		return s.change(ctx, r)
	}
	return s.handleLinks(ctx, r)
}

// handleLook answers those who look at the lab and into its nodes; ok is false if r asks
// for something else. They may do so from when all is built, while nodes are still waited
// for: to see why, for instance, one does not become healthy.
func (s *Supervisor) handleLook(ctx context.Context, r *control.Request) (result any, ok bool, err error) {
	switch r.Method {
	case methodInspect:
		result, err = s.inspect(ctx)
	case methodExternals:
		result, err = s.InspectExternals(ctx)
	case methodExec:
		result, err = s.exec(ctx, r)
	case methodSignal:
		err = s.signal(ctx, r)
	case methodAdmit:
		err = s.admit(ctx, r)
	case methodCapture:
		err = s.capture(ctx, r)
	case methodNodes:
		result, err = answered(ctx, s, r, inspect)
	case methodAdapter:
		result, err = answered(ctx, s, r, adapters)
	case methodConnections:
		result, err = answered(ctx, s, r, s.connections)
	case methodLinks:
		result, err = s.showLinks(ctx, r)
	case methodNames:
		result = NamesOf(s.topo)
	default:
		return nil, false, nil
	}
	return result, true, err
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

func (s *Supervisor) inspect(ctx context.Context) (*Inspection, error) {
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

func (s *Supervisor) exec(ctx context.Context, r *control.Request) (any, error) {
	var params execParams
	if err := r.Decode(&params); err != nil {
		return nil, err
	}
	agent, err := s.Node(params.Node)
	if err != nil {
		return nil, err
	}
	params.Command.ID = s.commandID(r.Conn, params.Command.ID)
	files := r.Files
	status, err := agent.Exec(ctx, params.Command, files...)
	if err != nil {
		return nil, err
	}
	return status, nil
}

func (s *Supervisor) signal(ctx context.Context, r *control.Request) error {
	var params signalParams
	if err := r.Decode(&params); err != nil {
		return err
	}
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
