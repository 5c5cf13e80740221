// Package interop holds the tests of labs against an RDMA implementation that
// nobody here wrote: the Linux kernel's soft-RoCE (rdma_rxe) with rdma_cm, in a
// virtual machine that is on a lab's link as an external.
//
// TestGuest tests, in both directions and over IPv4 and IPv6:
//
//   - rping, with every byte compared, a thousand times with text of each of
//     nine sizes from 64 to 65535 bytes; ibv_rc_pingpong, which needs no
//     connection management; ucmatose, with 100 connections at once.
//     All of it first on a clean link, then with 1 % of loss and 0.5 % of
//     reordering, by netem in the guest, of what it sends and of what it receives.
//   - After the first, that rxe has counted no error and the node neither, and
//     that both have accepted every packet that was on the wire; after the second,
//     that rxe has counted nothing but what loss and reordering lead to, and that
//     no retry limit was reached.
//   - Connections that are rejected, since nobody listens and by the consumer;
//     processes of either end that are killed in the middle of a transfer; the
//     link that is down for less and for more than a requester's retries last;
//     the whole guest gone, and another in its place. New connections work then.
//   - That every packet which crossed the guest's network card in all this has
//     the right ICRC, and is taken apart by tshark.
//
// And with programs for libibverbs and librdmacm, each with one end in the node and one
// in the guest, both ways (TestPrograms):
//
//   - Those of ibverbs-utils, perftest and rdmacm-utils, as Debian ships them, of RC, UC
//     and UD, by events and by polling, over shared receive queues, connected by
//     themselves, by rdma_cm and by rsockets, and multicast.
//   - A program of testdata/verbs, which compares what those do not: immediate data,
//     the results of atomic operations, the GRH of datagrams, and what a responder
//     refuses.
//
// On the clean link two things stay that are the guest's own affair, and are
// checked to be that (counters_test.go): rxe's timer also runs out when it need
// not; and an emulated machine that gets no processor for 134 ms acknowledges later
// than it says that it does.
//
// The machine is Debian's stock kernel under QEMU's software emulation, which
// needs neither KVM nor privilege; the scripts in rxeguest fetch and boot it. The
// tests are run by `make interop`; SHORT=1 has it do less of the same. They are
// skipped elsewhere, since they need QEMU and take minutes.
//
// Start reading at interop_test.go, which has the subjects one by one, and at
// programs_test.go, which has the tables of programs. A lab with a
// guest is in setting_test.go, the machine itself in guest_test.go.
package interop
