package event

// The kinds of events. Kinds says what each means.
const (
	LabReady         = "lab-ready"
	LabPlaced        = "lab-placed"
	LabWaiting       = "lab-waiting"
	LabChanged       = "lab-changed"
	HostLost         = "host-lost"
	NodeDown         = "node-down"
	NodeUp           = "node-up"
	NodePaused       = "node-paused"
	NodeResumed      = "node-resumed"
	NodeRemoved      = "node-removed"
	HealthChanged    = "health-changed"
	LinkChanged      = "link-changed"
	LinkAdded        = "link-added"
	LinkRemoved      = "link-removed"
	LinkOverrun      = "link-overrun"
	RoutesConverged  = "routes-converged"
	WorkloadStarted  = "workload-started"
	WorkloadProgress = "workload-progress"
	WorkloadDone     = "workload-done"
	TimelineDone     = "timeline"
	TimelineLeft     = "timeline-left"
	Marked           = "mark"
	QPError          = "qp-error"
	CaptureStarted   = "capture-started"
	CaptureDone      = "capture-done"
	Captured         = "captured"
	SpanningTree     = "spanning-tree"
	Deadlock         = "deadlock"
	Warning          = "warning"
	EventsLost       = "events-lost"
)

// A Kind is a kind of event and what it means.
type Kind struct {
	Name  string
	Means string // to be read after the name
	OfRun bool   // a scenario makes it, nobody else
}

// Kinds are all kinds, as `ndklab events --help` lists them.
var Kinds = []Kind{
	{Name: LabReady, Means: "every node is ready, for the first time"},
	{Name: LabPlaced, Means: "the nodes of a lab over several hosts have their hosts; which links cross"},
	{Name: LabWaiting, Means: "the lab is not ready yet, with the nodes it waits for"},
	{Name: LabChanged, Means: "an apply is done"},
	{Name: HostLost, Means: "a host of a lab that goes on without it is gone, and why"},
	{Name: NodeDown, Means: "a node's agent has ended"},
	{Name: NodeUp, Means: "it is there, or there again"},
	{Name: NodePaused, Means: "a node is paused"},
	{Name: NodeResumed, Means: "it goes on"},
	{Name: NodeRemoved, Means: "an apply has removed a node"},
	{Name: HealthChanged, Means: "a node is healthy or not, by its healthcheck"},
	{Name: LinkChanged, Means: "a link was set, reset, cut or joined"},
	{Name: LinkAdded, Means: "an apply has added a link"},
	{Name: LinkRemoved, Means: "an apply has removed a link"},
	{Name: LinkOverrun, Means: "the host could not keep up with a link", OfRun: true},
	{Name: RoutesConverged, Means: "routers and hosts have the routes over the links that are up"},
	{Name: WorkloadStarted, Means: "a workload of a run began", OfRun: true},
	{Name: WorkloadProgress, Means: "it goes on", OfRun: true},
	{Name: WorkloadDone, Means: "it has ended or failed", OfRun: true},
	{Name: TimelineDone, Means: "a command of the timeline has run, or counters are kept", OfRun: true},
	{Name: TimelineLeft, Means: "only entries of the timeline are still to come", OfRun: true},
	{Name: Marked, Means: "a mark of the timeline, with its text", OfRun: true},
	{Name: QPError, Means: "a queue pair is in error, and why; or how many more are"},
	{Name: CaptureStarted, Means: "packets of an interface are recorded"},
	{Name: CaptureDone, Means: "they are recorded no more"},
	{Name: Captured, Means: "a capture of the topology is complete"},
	{Name: SpanningTree, Means: "the switches look for loops, or are done"},
	{Name: Deadlock, Means: "queues that are paused wait for each other, and none moves"},
	{Name: Warning, Means: "something has no effect, and why"},
	{Name: EventsLost, Means: "events came faster than they were read"},
}

// OfRun reports whether a scenario makes the events of a kind.
func OfRun(kind string) bool {
	for _, k := range Kinds {
		if k.Name == kind {
			return k.OfRun
		}
	}
	return false
}
