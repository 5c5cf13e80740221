// Package hosts brings the processes of a lab to many hosts and keeps them together.
//
// A lab over many hosts has a head, which is its supervisor, and one worker on each host. A launcher (launch.go, slurm.go,
// ssh.go) starts the workers, from the guardian's process; in the pods of Kubernetes, processes become workers (kubernetes.go). A worker dials the head over TCP, says what its host has, and starts
// the host's part of the lab. From then on it passes requests, notices and files between the head and the part. Both ends of
// the connection have the lab's certificate and accept no other (credentials.go). Each ends what it has when the other is
// silent for some seconds (pulse.go). The head compares the hosts' clocks with its own (clock.go).
//
// The package decides nothing about nodes and links, and knows no topology. It also makes the sockets of trunks, which join
// the link engines of two hosts (join.go).
//
// Start reading at Head and Work.
package hosts

import (
	"time"

	"github.com/ndklab/ndklab/internal/control"
)

// A Host is one that has come. Its fields do not change.
type Host struct {
	Name    string
	Index   int     // from 0
	CPUs    float64 // that its worker may run on
	Memory  uint64  // bytes that are available there
	Address string  // of the IP by which it came
	Trip    time.Duration
	Conn    *control.Conn // reaches the host's part through its worker

	link  *attachment
	clock *comparison
}

// PartTrunk gives a part the sockets of a trunk to another host, by its name: a stream and one of datagrams.
var PartTrunk = control.NewProcedure[string]("part-trunk").WithFiles(2, 2)

// PartAlive is answered by a part that is not stopped.
var PartAlive = control.NewProcedure[control.None]("part-alive")

// prefix begins the names of all that head and worker ask each other. Anything else is for the part, or from it.
const prefix = "worker-"

// Requests and notices of a worker to its head.
var (
	methodHello    = control.NewMethod[hello, welcome](prefix + "hello")
	methodReady    = control.NewProcedure[control.None](prefix + "ready") // its part is there
	methodFarewell = control.NewProcedure[string](prefix + "farewell")    // with the reason
)

// Requests and notices of a head to a worker.
var (
	methodTime   = control.NewMethod[control.None, int64](prefix + "time") // returns the time by its wall clock, ns since 1970
	methodEnd    = control.NewProcedure[control.None](prefix + "end")
	methodListen = control.NewMethod[string, int](prefix + "listen") // for a trunk to the named host; returns the port
	methodAccept = control.NewProcedure[string](prefix + "accept")
	methodDial   = control.NewProcedure[trunkParams](prefix + "dial")
)

// noticeBeat says that its sender lives.
var noticeBeat = control.NewNotice[control.None](prefix + "beat")

// A hello describes a worker and its host.
type hello struct {
	Name   string
	Index  int
	Count  int    // of hosts, by what the worker knows
	Build  string // of its program
	CPUs   float64
	Memory uint64
}

// A welcome is the head's answer.
type welcome struct{ Lab string }

// comeTime bounds the time in which all hosts come once they are started.
const comeTime = time.Minute
