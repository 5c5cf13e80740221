package linkem

import (
	"errors"
	"os"
	"testing"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/impair"
	"github.com/ndklab/ndklab/topology"
)

// Packets that are lost, doubled or changed are remembered, with their identity; those
// that pass are not.
func TestLossesAreRemembered(t *testing.T) {
	b := newBench(t, topology.Impairment{Loss: topology.Loss{Packets: []uint64{2}}})
	b.arrive(t, roceSuperPacket(3, 100, 0))
	records, before := b.ingress.losses.all()
	if len(records) != 1 || before != 0 {
		t.Fatalf("%d losses, and %d before, of one packet", len(records), before)
	}
	if r := records[0]; r.Link != b.k.name || r.Place != 2 || !r.Known || r.RoCE.PSN != 1 || r.Verdict.Cause != impair.Place {
		t.Errorf("remembered %+v", r)
	}
	for _, harm := range []topology.Impairment{{Duplicate: 1}, {Corrupt: topology.Corrupt{Probability: 1}}, {Cut: true}} {
		b := newBench(t, harm)
		b.arrive(t, superPacket(1, 100))
		if records, _ := b.ingress.losses.all(); len(records) != 1 {
			t.Errorf("%+v: %d losses remembered, want 1", harm, len(records))
		}
	}
}

// Of more losses than are remembered, the last ones are, in order.
func TestLossesMakeRoom(t *testing.T) {
	b := newBench(t, topology.Impairment{Cut: true})
	const supers, packets = mostLosses/15 + 10, 15
	for range supers {
		b.arrive(t, superPacket(packets, 100))
	}
	records, before := b.ingress.losses.all()
	if len(records) != mostLosses || before != supers*packets-mostLosses {
		t.Fatalf("%d losses and %d before, of %d", len(records), before, supers*packets)
	}
	for i := range records {
		if want := before + uint64(i) + 1; records[i].Place != want {
			t.Fatalf("loss %d is of packet %d, want %d", i, records[i].Place, want)
		}
	}
}

// An engine writes them as a log of decisions in which the others are missing, and says if
// it cannot.
func TestEngineWritesLosses(t *testing.T) {
	l := newLab(t, 1500)
	l.quiet(t)
	l.attach(t, topology.Impairment{Loss: topology.Loss{Packets: []uint64{1, 3}}}, topology.Impairment{})
	arrivals(t, l, 10)
	file := logFile(t)
	must(t, l.engine.Losses(deadline(t), 7, file))
	if log := readLog(t, file); log.Records != 2 {
		t.Errorf("%d losses, want 2", log.Records)
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	must(t, err)
	defer full.Close()
	var unable *control.Error
	if err := l.engine.Losses(deadline(t), 7, full); !errors.As(err, &unable) || unable.Code != control.Unable || unable.Message != "no space left on device" {
		t.Errorf("to a full disk: %v", err)
	}
}
