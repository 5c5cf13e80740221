package lab

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/linkem"
	"github.com/ndklab/ndklab/internal/fabric/probe"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/trunk"
	"github.com/ndklab/ndklab/topology"
)

// This file probes a link between two hosts: the part at one end sends, the part at the other sees what arrives, and the head puts
// both together. The times are of the hosts' wall clocks. The engines know how their own clocks differ (trunk.Agreed), and each by
// how much its host's wall clock is ahead of its own.

// methodSend has a part send the probes of a flight, and write to the file what was sent.
var methodSend = control.NewProcedure[flightParams]("probe-send").WithFiles(1, 1)

// methodSee has a part look for the probes of a flight. The file is a socket: the part writes a byte when it looks, reads how long
// it is to go on, in ns, and writes what it has seen.
var methodSee = control.NewProcedure[flightParams]("probe-see").WithFiles(1, 1)

// flightParams are of a flight of probes that leaves one host for another.
type flightParams struct {
	Link, End int // the link's number, and the part's end
	Number    uint32
	Options   probe.Options
}

// probe has the part of a link send the probes, or both.
func (h *head) probe(ctx context.Context, spec *topology.Link, asked [2]topology.Impairment, probes Probes) ([2]report.Probed, error) {
	parts := h.ofLink(spec)
	if len(parts) == 1 {
		return methodProbe.Call(ctx, parts[0].Conn, probeParams{spec.Number, asked, probes})
	}
	fly := func(ctx context.Context, from int, o probe.Options, until func(*probe.Flight) time.Duration) (*probe.Flight, error) {
		return h.fly(ctx, spec, from, o, until)
	}
	return flyBoth(ctx, spec, fly, asked, probes)
}

// fly is the verify.Fly of a link between two hosts.
func (h *head) fly(ctx context.Context, spec *topology.Link, from int, o probe.Options, until func(*probe.Flight) time.Duration) (*probe.Flight, error) {
	sender, receiver := h.ofEnd(spec, from), h.ofEnd(spec, 1-from)
	before, err := h.compare(ctx, sender, receiver)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	params := flightParams{Link: spec.Number, End: 1 - from, Number: probe.NewNumber(), Options: o}
	seeing, err := ask(ctx, receiver, methodSee, params)
	if err != nil {
		return nil, err
	}
	defer seeing.end()
	if _, err := seeing.Read(make([]byte, 1)); err != nil {
		return nil, seeing.why(err)
	}
	params.End = from
	sending, err := ask(ctx, sender, methodSend, params)
	if err != nil {
		return nil, err
	}
	defer sending.end()
	f := new(probe.Flight)
	if err := json.NewDecoder(sending).Decode(f); err != nil {
		return nil, sending.why(err)
	}
	if _, err := seeing.Write(binary.LittleEndian.AppendUint64(nil, uint64(until(f)))); err != nil {
		return nil, seeing.why(err)
	}
	var seen probe.Seen
	if err := json.NewDecoder(seeing).Decode(&seen); err != nil {
		return nil, seeing.why(err)
	}
	after, err := h.compare(ctx, sender, receiver)
	if err != nil {
		return nil, err
	}
	join(f, &seen, before, after)
	return f, nil
}

// join adds to a flight what its receiver has seen, with times of the sender's clock. The receiver's is ahead of that by what was
// known before and after the flight.
func join(f *probe.Flight, seen *probe.Seen, before, after trunk.Difference) {
	f.Arrivals, f.Missed = seen.Arrivals, f.Missed+seen.Missed
	for i := range f.Arrivals {
		f.Arrivals[i].At -= after.Ahead
	}
	f.Unsure = max(after.Wrong, before.Wrong) + (after.Ahead - before.Ahead).Abs()
}

// compare returns by how much the wall clock of a host is ahead of another's, by what their engines agree on.
func (h *head) compare(ctx context.Context, of, other *farPart) (trunk.Difference, error) {
	ours, err := of.engine.Trunks(ctx)
	if err != nil {
		return trunk.Difference{}, fmt.Errorf("host %s: %w", of.Name, err)
	}
	theirs, err := other.engine.Trunks(ctx)
	if err != nil {
		return trunk.Difference{}, fmt.Errorf("host %s: %w", other.Name, err)
	}
	return wallDifference(ours[other.Name], theirs[of.Name]), nil
}

// wallDifference returns by how much the wall clock of a host is ahead of another's, by what the engines at the ends of the trunk
// between say. They agree on the difference of their own clocks, which is wrong by no more than what both have measured.
func wallDifference(own, other linkem.TrunkCounts) trunk.Difference {
	return trunk.Difference{Ahead: other.Wall + own.Ahead - own.Wall, Wrong: own.Wrong + other.Wrong}
}

// A partStream is a request to a part with a stream to and from it.
type partStream struct {
	*os.File
	host   string
	cancel context.CancelFunc
	over   chan struct{} // closed when the request is answered
	err    error         // the answer, then
}

// ask begins a request to a part with a stream, which ends with ctx.
func ask[P any](ctx context.Context, p *farPart, method control.Procedure[P], params P) (*partStream, error) {
	ours, theirs, err := streamPair("part")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &partStream{File: ours, host: p.Name, cancel: cancel, over: make(chan struct{})}
	go func() {
		defer close(s.over)
		defer theirs.Close() // the end of the stream
		s.err = method.Call(ctx, p.Conn, params, theirs)
	}()
	context.AfterFunc(ctx, func() { _ = ours.SetDeadline(time.Unix(1, 0)) }) // it fails on one that is closed, where nobody waits
	return s, nil
}

// why returns the reason why the stream has failed: what the part says, or else err.
func (s *partStream) why(err error) error {
	select {
	case <-s.over:
	case <-time.After(answerTime): // it has not noticed
		s.cancel()
		<-s.over
	}
	if s.err != nil && !errors.Is(s.err, context.Canceled) {
		err = s.err
	}
	return fmt.Errorf("host %s: %w", s.host, err)
}

// wait returns the answer to the request.
func (s *partStream) wait() error {
	<-s.over
	return s.err
}

// end ends the request, and waits until it has.
func (s *partStream) end() {
	s.cancel()
	<-s.over
	s.Close()
}

// sendProbes answers methodSend.
func (p *part) sendProbes(ctx context.Context, r *control.Request, params flightParams) error {
	port, err := p.openPort(params)
	if err != nil {
		return err
	}
	defer port.Close()
	f, err := port.Send(ctx, params.Number, params.Options)
	if err != nil {
		return err
	}
	return json.NewEncoder(r.Files[0]).Encode(f)
}

// seeProbes answers methodSee.
func (p *part) seeProbes(ctx context.Context, r *control.Request, params flightParams) error {
	port, err := p.openPort(params)
	if err != nil {
		return err
	}
	defer port.Close()
	stream := r.Files[0]
	defer context.AfterFunc(ctx, func() { _ = stream.SetDeadline(time.Unix(1, 0)) })()
	sight := port.See(params.Number, params.Options)
	defer sight.Stop()
	if _, err := stream.Write([]byte{0}); err != nil {
		return err
	}
	var limit [8]byte
	if _, err := io.ReadFull(stream, limit[:]); err != nil {
		return err
	}
	seen, err := sight.Finish(ctx, time.Duration(binary.LittleEndian.Uint64(limit[:])))
	if err != nil {
		return err
	}
	return json.NewEncoder(stream).Encode(seen)
}

// openPort opens the end of a link from which a flight leaves, or at which it arrives.
func (p *part) openPort(params flightParams) (*probe.Port, error) {
	spec := p.linkOf(params.Link)
	if spec == nil || params.End < 0 || params.End > 1 {
		return nil, control.Errorf(control.Usage, "there is no end %d of a link %d", params.End, params.Link)
	}
	end, err := p.probeEnd(spec, params.End)
	if err != nil {
		return nil, err
	}
	return end.Open()
}
