// Package interop holds the tests of labs against an RDMA implementation that
// nobody here wrote: the Linux kernel's soft-RoCE (rdma_rxe) with rdma_cm, in a
// virtual machine that is on a lab's link as an external.
//
// The machine is Debian's stock kernel under QEMU's software emulation, which
// needs neither KVM nor privilege; the scripts in rxeguest fetch and boot it. The
// tests are run by `make interop`. They are skipped elsewhere, since they need
// QEMU and take minutes.
//
// Start reading at interop_test.go: what is tested, subject by subject. A lab with a
// guest is in setting_test.go, the machine itself in guest_test.go.
package interop
