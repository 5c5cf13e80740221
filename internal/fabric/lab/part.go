package lab

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/lab/link"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/trunk"
	"github.com/ndklab/ndklab/internal/hosts"
	"github.com/ndklab/ndklab/internal/node"
	"github.com/ndklab/ndklab/internal/node/cgroup"
	"github.com/ndklab/ndklab/internal/node/reaper"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/topology"
	"golang.org/x/sys/unix"
)

// This file is the part of a lab that is at one of several hosts: the process that carries out what the head says (head.go).

// Requests of a head to a part. Those to an agent or the engine go to engineName, and to agentAt (control.Behind).
var (
	methodPrepare    = control.NewProcedure[partParams]("prepare")
	methodOrder      = control.NewMethod[order, outcome]("order")
	methodPorts      = control.NewMethod[control.None, []portAt]("ports")
	methodCarried    = control.NewMethod[control.None, map[int]carried]("carried") // by the number of the link
	methodPID        = control.NewMethod[pidParams, int]("pid")
	methodProbe      = control.NewMethod[probeParams, [2]report.Probed]("probe")
	methodEngines    = control.NewProcedure[[]topology.Link]("engines") // looks whether there is what these links ask for
	methodRenew      = control.NewProcedure[renewal]("renew")
	methodForgetNode = control.NewProcedure[string]("forget-node")
	methodForgetLink = control.NewProcedure[int]("forget-link")                // by its number
	methodLocal      = control.NewMethod[control.None, string]("local-socket") // returns its path
	methodUsage      = control.NewMethod[string, usage]("usage")               // of a node
)

// Requests and notices of a part to its head.
var (
	methodEnded   = control.NewProcedure[ended]("ended")
	methodOver    = control.NewProcedure[string]("over") // the part ends, for that reason
	noticeBegan   = control.NewNotice[began]("began")    // an agent
	noticeTrunk   = control.NewNotice[trunkEnd]("trunk-end")
	noticePublish = control.NewNotice[event.Event]("publish")
	noticeQPError = control.NewNotice[nodeQPError]("qp-error")
)

type (
	partParams struct {
		Lab      string
		Topology *topology.Topology // the whole lab's
		Host     string             // where the part is
		Hosts    map[string]string  // by node
	}
	// A renewal is the topology that the lab has now.
	renewal struct {
		Topology *topology.Topology
		Hosts    map[string]string // by node
	}
	// An outcome is the result of an order.
	outcome struct {
		Done core.Done
		Err  *control.Error
	}
	portAt struct {
		Link, End int
		Status    link.PortStatus
	}
	pidParams struct {
		Node string
		PID  int
	}
	probeParams struct {
		Link   int // its number
		Asked  [2]topology.Impairment
		Probes Probes
	}
	usage struct {
		Limits *report.Limits
		Usage  *report.Usage
	}
	// A trunkEnd says that the trunk to a host is no more.
	trunkEnd struct{ Host, Reason string }
	ended    struct {
		core.Of
		Reason string
	}
	began struct {
		core.Of
		PID int // at the host
	}
	nodeQPError struct {
		Node  string
		Error provider.QPError
	}
)

// agentAt is the address at which a part has the agent of a node's life.
func agentAt(of core.Of) string { return of.Node + " " + strconv.Itoa(of.Life) }

// A part carries out the orders of a head for the nodes of its host and their links. It is process 1 of its PID namespace:
// its end is the end of all that it has made.
type part struct {
	*machine
	dir        string // the state directory, which the part covers
	privileged bool
	head       *control.Conn
	over       chan struct{} // closed when reason is set
	ending     sync.Once
	reason     *control.Error
	local      localSocket

	keeper keeper

	topo atomic.Pointer[topology.Topology] // the lab's, as the head has said last; set by prepared, and by renewed
	// first is set by prepared.
	first map[int]*topology.Link // the links of the first topology, by number
}

// work is the process of a host's worker. It removes what the kernel does not when a part has ended.
func work() error {
	lab := ""
	err := hosts.Work(func(name, host string, control *os.File) (*exec.Cmd, error) {
		lab = name
		return startPart(name, host, control)
	})
	if lab == "" {
		return err
	}
	err = errors.Join(err, cgroup.Remove(lab)) // where other parts of it are on this machine, the last one removes the rest
	p, placeErr := placeOf(lab)
	if placeErr != nil {
		return errors.Join(err, placeErr)
	}
	return errors.Join(err, p.removeDeadNames())
}

// startPart starts the part of a lab at a host, or what examines the host.
func startPart(lab, host string, control *os.File) (*exec.Cmd, error) {
	if lab == hosts.NoLab {
		cmd := childCommand(DoctorName, "host", os.Stderr, control)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
		return cmd, cmd.Start()
	}
	dir, err := stateDir()
	if err != nil {
		return nil, err
	}
	cmd := childCommand(partName, lab+"/"+host, os.Stderr, control)
	rights := "ordinary"
	if privileged() {
		rights = withRights
	}
	cmd.Args = append(cmd.Args, dir, rights)
	cmd.SysProcAttr = supervisorAttributes()
	cmd.SysProcAttr.Pdeathsig = unix.SIGKILL // with its worker
	if err := cmd.Start(); err != nil {
		return nil, namespaceError(err)
	}
	return cmd, nil
}

// withRights is the argument of a part whose user is root, outside as well.
const withRights = "privileged"

// runPart is the process of a part. Its arguments are those of partCommand.
func runPart() error {
	if len(os.Args) != 3 {
		return errors.New("this is started by a worker alone")
	}
	p := &part{dir: os.Args[1], privileged: os.Args[2] == withRights, over: make(chan struct{})}
	children := reaper.New()
	nodes := &nodeDriver{
		reaper: children, shared: &node.Machine{Reaper: children}, publish: p.publish, lives: map[string]*life{}, ended: p.agentEnded,
		began:   func(of core.Of, pid int) { p.tell(noticeBegan.Send(p.head, began{of, pid})) },
		qpError: func(node string, e provider.QPError) { p.tell(noticeQPError.Send(p.head, nodeQPError{node, e})) },
	}
	links := &linkDriver{
		engine: engine{reaper: children, died: p.end}, nodes: nodes, publish: p.publish,
		externals: map[string]*external{}, links: map[int]*labLink{}, switches: map[string]*labSwitch{},
	}
	p.machine = &machine{nodes: nodes, links: links, publish: p.publish, lanes: newLanes(), afar: true}
	p.present = p.topo.Load
	findSelf()
	signal.Ignore(unix.SIGPIPE)        // when the guardian is killed, nobody reads the log, and the lab goes on
	signals := make(chan os.Signal, 1) // process 1 gets no signal that it has no handler for
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT)
	go func() {
		p.end(control.Errorf(control.Failed, "it was ended by %s", unix.SignalName((<-signals).(unix.Signal))))
	}()
	go children.Run()
	begun := make(chan struct{})
	requests := p.requests()
	head, err := control.FromFile(inherited(firstFile, "control"), func(ctx context.Context, r *control.Request) (any, error) {
		<-begun
		return requests.Serve(ctx, r)
	})
	if err != nil {
		return err
	}
	p.head = head
	close(begun)
	select {
	case <-p.over:
		log.Print(p.reason)
		p.tell(methodOver.Call(context.Background(), p.head, p.reason.Error()))
	case <-p.head.Done():
	}
	p.links.engine.end()
	return nil
}

// findSelf has commands of nodes find this program also where it was started by a path.
func findSelf() {
	if self, err := os.Executable(); err == nil {
		os.Setenv("PATH", strings.TrimPrefix(os.Getenv("PATH")+":"+filepath.Dir(self), ":"))
	}
}

// tell logs that the head was not told something. It is gone then, and the part ends.
func (p *part) tell(err error) {
	if err != nil && !errors.Is(err, control.ErrClosed) {
		log.Printf("the head: %v", err)
	}
}

// end makes the part end; the first reason counts.
func (p *part) end(reason *control.Error) {
	p.ending.Do(func() {
		p.reason = reason
		close(p.over)
	})
}

func (p *part) publish(e event.Event) { p.tell(noticePublish.Send(p.head, e)) }

// agentEnded tells the head that an agent has ended. Until the head knows, actions that fail have failed for that (nodeDriver.ending).
func (p *part) agentEnded(l *life, reason string) {
	p.tell(methodEnded.Call(context.Background(), p.head, ended{l.Of, reason}))
	close(l.down)
}

func (p *part) requests() *control.Mux {
	mux := new(control.Mux)
	methodPrepare.Handle(mux, p.prepared)
	methodOrder.Handle(mux, p.carryOut)
	methodPorts.Handle(mux, func(context.Context, *control.Request, control.None) (all []portAt, err error) {
		ports, err := p.ports()
		for at, status := range ports {
			all = append(all, portAt{at[0], at[1], status})
		}
		return all, err
	})
	methodCarried.Handle(mux, func(context.Context, *control.Request, control.None) (map[int]carried, error) {
		return p.carried(p.topo.Load())
	})
	methodPID.Handle(mux, func(_ context.Context, _ *control.Request, of pidParams) (int, error) { return p.pid(of.Node, of.PID) })
	methodUsage.Handle(mux, func(_ context.Context, _ *control.Request, node string) (u usage, err error) {
		if l := p.life(node); l != nil {
			u.Limits, u.Usage = l.usage()
		}
		return u, nil
	})
	methodExternals.Handle(mux, func(ctx context.Context, _ *control.Request, _ control.None) ([]report.External, error) {
		return p.inspectExternals(ctx, p.topo.Load())
	})
	methodEngines.Handle(mux, func(_ context.Context, _ *control.Request, links []topology.Link) error {
		return checkEngines(&topology.Topology{Links: links})
	})
	methodRenew.Handle(mux, p.renewed)
	methodForgetNode.Handle(mux, func(_ context.Context, _ *control.Request, name string) error {
		p.forgetNode(name)
		return nil
	})
	methodForgetLink.Handle(mux, func(_ context.Context, _ *control.Request, number int) error {
		p.links.forget(number)
		return nil
	})
	methodLocal.Handle(mux, func(context.Context, *control.Request, control.None) (string, error) { return p.localPath() })
	methodCapture.Handle(mux, p.capture)
	methodProbe.Handle(mux, p.probeLink)
	hosts.PartAlive.Handle(mux, func(context.Context, *control.Request, control.None) error { return nil })
	methodSend.Handle(mux, p.sendProbes)
	methodSee.Handle(mux, p.seeProbes)
	methodKeep.Handle(mux, p.keep)
	methodKept.Handle(mux, p.kept)
	hosts.PartTrunk.Handle(mux, p.joinHost)
	hosts.PartClock.Handle(mux, func(_ context.Context, _ *control.Request, d trunk.Difference) error {
		p.clock.Store(&d)
		return nil
	})
	mux.Forward(p.find)
	return mux
}

// prepared answers methodPrepare.
func (p *part) prepared(ctx context.Context, _ *control.Request, params partParams) error {
	topo := params.Topology
	p.topo.Store(topo)
	p.host, p.first = params.Host, make(map[int]*topology.Link, len(topo.Links))
	for i := range topo.Links {
		p.first[topo.Links[i].Number] = &topo.Links[i]
	}
	p.nodes.lab = params.Lab
	p.links.engine.lab = params.Lab
	p.links.setFar(params.Hosts, params.Host)
	if err := p.prepare(setting{Lab: params.Lab, Topology: topo, StateDir: p.dir, Privileged: p.privileged}); err != nil {
		return err
	}
	p.links.noteRouters(topo)
	p.beginLinks = func() error { return p.begin(context.Background(), topo) }
	return nil
}

// renewed answers methodRenew.
func (p *part) renewed(_ context.Context, _ *control.Request, params renewal) error {
	p.links.setFar(params.Hosts, p.host)
	p.topo.Store(params.Topology)
	return nil
}

// carryOut answers methodOrder.
func (p *part) carryOut(_ context.Context, _ *control.Request, o order) (outcome, error) {
	topo := p.topo.Load()
	a, err := o.action(topo, p.first)
	if err != nil {
		return outcome{}, err
	}
	if of, ok := a.(core.MakeSwitch); ok {
		p.links.setBridge(of.Spec.Name, o.Bridge)
	}
	result := outcome{Done: p.action(topo, a)()}
	if err := result.Done.Err; err != nil {
		result.Err, result.Done.Err = control.AsError(err), nil
	}
	if ends, ok := a.(core.MakeEnds); ok && result.Err == nil {
		p.keeper.bind(ends.Link.Number)
	}
	return result, nil
}

// find returns the requests of the engine or of an agent, by its address.
func (p *part) find(to string) (control.Handler, error) {
	if to == engineName {
		engine, err := p.links.engine.channel()
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, r *control.Request) (any, error) { return control.Relay(ctx, r, engine) }, nil
	}
	name, _, _ := strings.Cut(to, " ")
	if l := p.life(name); l != nil && agentAt(l.Of) == to {
		return l.agent.Requests(control.Behind(p.head, to)).Serve, nil
	}
	return nil, control.Errorf(control.Usage, "there is no node %s", to)
}

// joinHost answers hosts.PartTrunk.
func (p *part) joinHost(ctx context.Context, r *control.Request, host string) error {
	engine, err := p.links.engine.start()
	if err != nil {
		return err
	}
	if err := engine.Trunk(ctx, host, r.Files[0], r.Files[1]); err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	go func() {
		if err := engine.AwaitTrunkEnd(context.Background(), host); !errors.Is(err, control.ErrClosed) {
			p.tell(noticeTrunk.Send(p.head, trunkEnd{host, err.Error()}))
		}
	}()
	return nil
}
