package report_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/fabric/report"
)

// A pause is told by the endpoint that was paused: the other end of its link is to blame.
func TestPauses(t *testing.T) {
	buffers := []report.Buffer{
		{Node: "h", Ports: []report.BufferPort{{Interface: "eth0", Peer: "s:e0", Classes: []report.BufferClass{{Class: 3, RxPauses: 2, RxPauseUS: 5}}}}},
		{Node: "s", Ports: []report.BufferPort{
			{Interface: "e0", Peer: "h:eth0", Classes: []report.BufferClass{{Class: 3, TxPauses: 2, TxPauseUS: 5}}}, // the same pause, as told by who sent it
			{Interface: "e1", Peer: "t:e0", Classes: []report.BufferClass{{Class: 0}, {Class: 3, RxPauses: 7, RxPauseUS: 9}}},
		}},
	}
	want := []report.Pause{{By: "t:e0", Whom: "s:e1", Class: 3, Frames: 7, US: 9}, {By: "s:e0", Whom: "h:eth0", Class: 3, Frames: 2, US: 5}}
	if diff := cmp.Diff(want, report.Pauses(buffers)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Drops come before length.
func TestByTrouble(t *testing.T) {
	long := report.Queue{Endpoint: "long", BufferClass: &report.BufferClass{Queue: report.QueueLength{P99: 9, Peak: 9}}}
	peak := report.Queue{Endpoint: "peak", BufferClass: &report.BufferClass{Queue: report.QueueLength{P99: 3, Peak: 20}}}
	lossy := report.Queue{Endpoint: "lossy", BufferClass: &report.BufferClass{Dropped: map[string]uint64{"shared": 1, "egress": 1}}}
	queues := []report.Queue{peak, long, lossy}
	slices.SortFunc(queues, report.ByTrouble)
	if got := queues[0].Endpoint + queues[1].Endpoint + queues[2].Endpoint; got != "lossylongpeak" || lossy.Drops() != 2 {
		t.Errorf("the order is %s, with %d drops, want lossylongpeak, with 2", got, lossy.Drops())
	}
}

// A class in which only frames of PFC passed has no queue.
func TestQueues(t *testing.T) {
	b := report.Buffer{Node: "s", Ports: []report.BufferPort{{Interface: "e0", Classes: []report.BufferClass{{Class: 0, TxPauses: 4}, {Class: 3, Dropped: map[string]uint64{"shared": 1}}}}}}
	if got := report.Queues([]report.Buffer{b}); len(got) != 1 || got[0].Endpoint != "s:e0" || got[0].Class != 3 {
		t.Errorf("got %v, want s:e0, class 3 alone", got)
	}
}
