// Go's runtime reads how many processors a cgroup grants when a program starts, and
// again and again later. A lab has a process per node, each of which would: they take
// the machine's number of processors instead.

//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

package main
