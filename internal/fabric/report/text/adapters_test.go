package text

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/node/adapter"
	"github.com/ndklab/ndklab/provider"
)

// clientAdapter is an adapter like any other.
func clientAdapter() *adapter.State {
	return &adapter.State{
		Enabled: true, Instances: 2,
		Addresses: []adapter.Address{
			{Address: netip.MustParseAddr("10.0.0.1"), Interface: "eth0", MTU: 4200, RoCEFrameSize: 4096},
			{Address: netip.MustParseAddr("fd6e:646b:1::1"), Interface: "eth0", MTU: 4200, RoCEFrameSize: 4096},
			{Address: netip.MustParseAddr("10.0.1.1"), Interface: "eth1", MTU: 1500, RoCEFrameSize: 1024},
		},
		Info: provider.AdapterInfo{
			Version: provider.InterfaceVersion, VendorID: 0x026E64, DeviceID: 1, MaxRegistrationSize: 1 << 40, MaxWindowSize: 0, FRMRPageCount: 16,
			MaxInitiatorRequestSge: 30, MaxReceiveRequestSge: 31, MaxReadRequestSge: 29, MaxTransferLength: 1<<30 + 1, MaxInlineDataSize: 928,
			MaxInboundReadLimit: 16, MaxOutboundReadLimit: 17, MaxReceiveQueueDepth: 32768, MaxInitiatorQueueDepth: 32767, MaxSrqDepth: 1024,
			MaxCqDepth: 4 << 20, LargeRequestThreshold: 65536, MaxCallerData: 56, MaxCalleeData: 148,
			AdapterFlags: provider.AdapterInOrderDMA | provider.AdapterLoopbackConnections, RdmaTechnology: provider.RoCEv2,
		},
		Capabilities: adapter.Capabilities{Capabilities: provider.Capabilities{
			MaxQpCount: 1 << 17, MaxCqCount: 1 << 18, MaxMrCount: 1 << 23, MaxPdCount: 4096, MaxInboundReadLimit: 0, MaxOutboundReadLimit: 100,
			MaxMwCount: 7, MaxSrqCount: 65536,
		}},
		InUse:         provider.Usage{Qps: 1, Cqs: 2, Mrs: 300, Pds: 4, InboundReads: 5, OutboundReads: 6, Mws: 7, Srqs: 8},
		Configuration: provider.Configuration{NetworkDirect: 1, NetworkDirectTechnology: 4},
	}
}

// adapters is one adapter for each state that one can be in.
func adapters() []report.NodeAdapter {
	state := func(enabled bool, instances int) *adapter.State {
		a := clientAdapter()
		a.Enabled, a.Instances = enabled, instances
		return a
	}
	return []report.NodeAdapter{
		{NodeState: report.NodeState{Name: "client", State: "ready"}, Adapter: clientAdapter()},
		{NodeState: report.NodeState{Name: "server-with-a-longer-name", State: "ready"}, Adapter: state(false, 0)},
		{NodeState: report.NodeState{Name: "closing", State: "ready"}, Adapter: state(false, 1)},
		{NodeState: report.NodeState{Name: "lonely", State: "ready"}, Adapter: nil},
		{NodeState: report.NodeState{Name: "dead", State: "down", Reason: "its agent was killed by SIGKILL"}, Adapter: nil},
		{NodeState: report.NodeState{Name: "odd", State: "ready", Reason: "something failed \x1b[31m"}, Adapter: nil},
	}
}

// crowd is many nodes, one of which is down.
func crowd() []report.Node {
	var nodes []report.Node
	for i := range 20 {
		nodes = append(nodes, report.Node{
			NodeState: report.NodeState{Name: fmt.Sprintf("n%d", i), State: "ready"},
			Counters:  map[string]uint64{"Connect": uint64(i), "RDMAInOctets": uint64(i) * 123456789, "ActiveConnection": 1},
			Transport: map[string]uint64{"packets_sent": uint64(i) * 1000, "timeouts": 0},
		})
	}
	nodes[3] = report.Node{NodeState: report.NodeState{Name: "n3", State: "down", Reason: "its agent was killed by SIGKILL"}}
	return nodes
}

// changes returns what pair counted in a second in which little happened.
func changes() *report.Changes {
	nodes := pair().Nodes
	nodes[0].Counters["RDMAOutOctets"] += 4170
	nodes[0].Counters["RDMAOutFrames"]++
	nodes[1].Counters["ActiveConnection"] = 3
	nodes[1].Transport["packets_received"]++
	return &report.Changes{Lab: "pair", Time: time.Date(2026, 11, 21, 3, 4, 5, 678e6, time.UTC), Seconds: 1.00049, Nodes: report.Since(pair().Nodes, nodes)}
}

func connections() *report.Connections {
	return &report.Connections{
		Lab:   "pair",
		Nodes: []report.NodeState{{Name: "client", State: "ready"}, {Name: "server", State: "down", Reason: "its agent was killed by SIGKILL"}},
		Connections: []adapter.Connection{
			{Node: "client", Mode: "Kernel", Interface: "eth0", IfIndex: 2, Type: "Connection", Local: "10.0.0.1:49152", Remote: "10.0.0.2:18515",
				State: "established", QPN: 0x24450, RemoteQPN: 0xb530},
			{Node: "client", Mode: "User", Interface: "eth0", IfIndex: 2, Type: "Connection", Local: "[fd6e:646b:1::1]:49153", Remote: "[fd6e:646b:1::2]:445",
				PID: 4711, State: "connecting", QPN: 0x40001},
			{Node: "client", Mode: "User", Interface: "eth0", IfIndex: 2, Type: "SharedEndpoint", Local: "10.0.0.1:700", PID: 4711},
			{Node: "client", Mode: "Kernel", Interface: "eth1", IfIndex: 3, Type: "Listener", Local: "10.0.1.1:445"},
		},
	}
}
