// Package misuse tests that no program is crashed, held up or corrupted by the libraries with which RDMA programs find a
// node's adapter (verbs/lib, verbs/engine), whatever it does: wrong arguments, states and orders, memory that it
// takes away, forks, signals, threads, little of everything, and every manner of ending.
//
// The cases are C, in testdata: a program of Linux's own headers of libibverbs, which runs each in a process of its own in
// a node, where two of its queue pairs talk to each other. main.c lists them. The package has nothing but tests.
package misuse
