// Package labtest is labs for tests: a test of package testing has a lab of its own, as
// long as it runs.
//
//	func TestReplication(t *testing.T) {
//		lab := labtest.Up(t, "testdata/pair.ndklab.yaml")
//		client, server := lab.Node("client").Adapter(), lab.Node("server").Adapter()
//		// ... NDKPI, on two nodes, in one function ...
//		lab.Link("client:eth0").Cut()
//		lab.Eventually(func() error { ... })
//	}
//
// It needs no TestMain, no installed program and no privileges. The processes of a lab
// are the test binary, started again under other names: the package's initialisation
// takes over in them, before flags are parsed and tests begin (self.go). The
// initialisation of other packages runs in them, too.
//
// Tests may run in parallel, and have several labs of one file: each lab gets a name of
// its own. A lab ends with its test, whether that passes, fails, panics or is killed. Where the
// machine cannot have labs, the test is skipped and says why; with NDKLAB_REQUIRED=1 in
// the environment, as for continuous integration, it fails.
//
// Of a test that fails the lab's evidence is kept, as `ndklab run` keeps it: the topology,
// the log, the events, the state of nodes and links with all counters, the connections,
// the last packets of each link and what the link engine has dropped. The test's output
// says where, and with which seed to repeat the test (NDKLAB_SEED). The folder is that of
// go test -artifacts, or NDKLAB_ARTIFACTS, or one among the temporary files.
//
// Methods without an error as their result end the test when they fail, as t.Fatal does,
// and are for the goroutine of the test, as that is. In a subtest they are called on
// Lab.In(t). A method that waits does so until shortly before the deadline of the test
// (go test -timeout), and at most for the Patience of the lab: a test fails by itself,
// with evidence, rather than by a panic of package testing.
//
// Node.Adapter and Node.Do give a function of the test a node's RDMA adapter, that is a
// *provider.Adapter. The function runs in the test's process: it shares memory with the
// test, and its files and other sockets are those of the test. Only the adapter is the
// node's: its limits, addresses, counters and packets. The node lends it as it lends it
// to programs that run there (package lease), by sockets made in the node's network
// namespace. So no thread enters a namespace, and ordinary users have it as root has.
// A node that goes down fails the adapter as a machine's end does; to pause a node does not
// pause the function.
//
// Lab.Run and Simulate run the workloads, timeline and checks of a topology: a scenario of
// a file is a test in one line. Each check is a subtest.
//
// Simulate plays a topology in virtual time, in the test's own process: no privileges,
// milliseconds for minutes, and the same result for the same seed. Client and Server run
// functions of the test in it, which have the adapters of its nodes.
//
// Start reading at Up for labs, at Topology for topologies made in code.
package labtest
