package linkem

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/impair"
	"github.com/ndklab/ndklab/topology"
)

// logFile is an empty file.
func logFile(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "decisions"))
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// record has a bench record to a file.
func (b *bench) record(file *os.File, batch int) *recorder {
	b.ingress.recorder = &recorder{spool: newSpool[impair.Record](batch), file: file, text: impair.AppendHeader(nil, 1)}
	return b.ingress.recorder
}

func readLog(t *testing.T, file *os.File) *impair.Log {
	t.Helper()
	_, err := file.Seek(0, io.SeekStart)
	must(t, err)
	log, err := impair.ReadLog(file)
	must(t, err)
	return log
}

// A line that replays what another one recorded does the same, whatever its
// settings.
func TestReplayDoesWhatWasRecorded(t *testing.T) {
	// As long a delay as no pause of the machine is: what has left is not overtaken.
	recorded := newBench(t, topology.Impairment{Delay: time.Minute, Loss: topology.Loss{Rate: 0.2}, Duplicate: 0.2,
		Reorder: topology.Reorder{Probability: 0.3, Depth: 3}, Corrupt: topology.Corrupt{Probability: 0.1}})
	file := logFile(t)
	recorder := recorded.record(file, recordBatch)
	replaying := newBench(t, topology.Impairment{Loss: topology.Loss{Rate: 0.9}})
	const rounds = 20
	run := func(b *bench) (out [][]byte) {
		for i := range rounds {
			raw := superPacket(10, 100)
			raw[len(raw)-1] = byte(i)
			b.arrive(t, raw)
		}
		b.shift(time.Hour)
		for n := b.k.lines[0]; !n.queue.empty(); {
			b.egress.send(n)
		}
		return b.wire(t)
	}
	want := run(recorded)
	if status := recorder.flushed(); status != (Recorded{Records: 10 * rounds}) {
		t.Fatalf("recorded %+v", status)
	}
	log := readLog(t, file)
	replaying.k.replay(log)
	again := logFile(t)
	second := replaying.record(again, recordBatch) // both at once
	got := run(replaying)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what left (-recorded +replayed):\n%s", diff)
	}
	m := replaying.k.lines[0].measure(false)
	if m.Replayed != (impair.Replayed{Packets: 10 * rounds}) || m.Dropped == 0 || m.Duplicated == 0 || m.Reordered == 0 || m.Corrupted == 0 {
		t.Errorf("measured %+v", m)
	}
	if status := second.flushed(); status != (Recorded{Records: 10 * rounds}) {
		t.Errorf("recorded %+v while replaying", status)
	}
	if log := readLog(t, again); log.Records != 10*rounds {
		t.Errorf("%d records of the replay", log.Records)
	}
	replaying.arrive(t, superPacket(1, 100))
	if m := replaying.k.lines[0].measure(false); m.Replayed.Unrecorded != 1 {
		t.Errorf("a packet more: %+v", m.Replayed)
	}
}

// A link that is given back to the kernel delays nothing any more, whatever was
// recorded; it replays again when it is the engine's again.
func TestReplayEndsWithTheRelease(t *testing.T) {
	file := logFile(t)
	recorded := newBench(t, topology.Impairment{Delay: time.Hour})
	recorder := recorded.record(file, recordBatch)
	for range 3 {
		recorded.arrive(t, superPacket(1, 100))
	}
	recorder.flushed()
	b := newBench(t, topology.Impairment{})
	b.links.log = readLog(t, file)
	b.k.replay(b.links.log)
	n := b.k.lines[0]
	b.arrive(t, superPacket(1, 100))
	b.shift(time.Hour)
	b.egress.send(n)
	idle, err := b.links.release("x")
	must(t, err)
	b.arrive(t, superPacket(1, 100))
	b.egress.send(n)
	select {
	case <-idle:
	default:
		t.Error("a recorded delay keeps the link from being released")
	}
	ports := b.k.ports
	b.k.state = detached
	must(t, b.links.attach(Link{Name: "x", Seed: 1}, ports))
	b.arrive(t, superPacket(1, 100))
	if m := n.measure(false); n.queue.empty() || m.Replayed != (impair.Replayed{Packets: 2}) {
		t.Errorf("replayed %+v", m.Replayed)
	}
}

// A release that nobody waits for any more can be asked for again, and a change of
// the link ends it.
func TestReleaseThatIsGivenUp(t *testing.T) {
	b := newBench(t, topology.Impairment{Delay: 30 * time.Second})
	b.arrive(t, superPacket(1, 100))
	for range 2 {
		_, err := b.links.release("x")
		must(t, err)
	}
	b.set(t, setParams{"x", 0, topology.Impairment{Delay: time.Minute}})
	if err := b.links.released("x", [2]*watch{}); err == nil {
		t.Error("a link that was changed is released")
	}
	b.arrive(t, superPacket(1, 100))
	b.shift(45 * time.Second)
	b.egress.send(b.k.lines[0])
	if m := b.k.lines[0].measure(false); m.Delivered != 1 || b.k.state != started {
		t.Errorf("the link is %s, measured %+v", b.k.state, m)
	}
}

// A caller that waits for a link to be idle is told when the last packet has left.
func TestIdle(t *testing.T) {
	b := newBench(t, topology.Impairment{Delay: time.Hour})
	isIdle := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	if !isIdle(b.k.whenIdle()) {
		t.Error("a link without packets is not idle")
	}
	b.arrive(t, superPacket(1, 100))
	first, second := b.k.whenIdle(), b.k.whenIdle()
	if isIdle(first) || isIdle(second) {
		t.Error("idle with a packet on its way")
	}
	b.shift(time.Hour)
	b.egress.send(b.k.lines[0])
	if !isIdle(first) || !isIdle(second) {
		t.Error("not idle when all have left")
	}
}

// Records tell RoCEv2 packets apart, also when nothing else asks who they are.
func TestRecordsHaveIdentities(t *testing.T) {
	b := newBench(t, topology.Impairment{})
	file := logFile(t)
	recorder := b.record(file, recordBatch)
	b.arrive(t, roceSuperPacket(2, 100, 0))
	b.arrive(t, superPacket(1, 100))
	recorder.flushed()
	log, err := os.ReadFile(file.Name())
	must(t, err)
	lines := strings.Split(string(log), "\n")
	for i, want := range []string{`"opcode":7,"qp":17,"psn":0,`, `"opcode":7,"qp":17,"psn":1,`, `"frame":142,"fate"`} {
		if !strings.Contains(lines[i+1], want) {
			t.Errorf("packet %d: %s, want %s in it", i, lines[i+1], want)
		}
	}
}

// Records that there is no room for are missing, and the log says so.
func TestRecordsThatAreNotWrittenInTime(t *testing.T) {
	b := newBench(t, topology.Impairment{})
	file := logFile(t)
	recorder := b.record(file, 10)
	b.arrive(t, superPacket(15, 100))
	if status := recorder.flushed(); status != (Recorded{Records: 10, Missing: 5}) {
		t.Errorf("recorded %+v of 15 with room for 10", status)
	}
	b.arrive(t, superPacket(3, 100))
	if status := recorder.flushed(); status != (Recorded{Records: 13, Missing: 5}) {
		t.Errorf("recorded %+v", status)
	}
	if log := readLog(t, file); log.Records != 13 || log.Missing != 5 {
		t.Errorf("the log has %d records and misses %d", log.Records, log.Missing)
	}
}

// A full disk stops the recording and nothing else.
func TestRecordToAFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	must(t, err)
	defer full.Close()
	b := newBench(t, topology.Impairment{})
	recorder := b.record(full, recordBatch)
	for range 2 {
		b.arrive(t, superPacket(15, 100))
		recorder.flushed()
	}
	if status := recorder.flushed(); status.Records != 0 || status.Missing != 30 || status.Error != "no space left on device" {
		t.Errorf("recorded %+v", status)
	}
	b.egress.send(b.k.lines[0])
	if m := b.k.lines[0].measure(false); m.Delivered != 30 {
		t.Errorf("measured %+v", m)
	}
}

func TestALogHasABound(t *testing.T) {
	for size, ok := range map[int]bool{0: true, 99: true, 100: true, 101: false} {
		got, err := io.ReadAll(&limited{bytes.NewReader(make([]byte, size)), 100})
		if (err == nil) != ok || len(got) != min(size, 100) {
			t.Errorf("%d bytes of %d, %v", len(got), size, err)
		}
	}
}

// arrivals sends numbered datagrams across a quiet link and says which arrive.
func arrivals(t *testing.T, l *lab, count int) (numbers []uint16) {
	t.Helper()
	from, to := l.nodes[0].udp(t, "udp4"), l.nodes[1].udp(t, "udp4")
	for i := range count {
		_, err := from.WriteTo(binary.BigEndian.AppendUint16(nil, uint16(i)), to.LocalAddr())
		must(t, err)
	}
	var delivered uint64
	eventually(t, func() bool {
		m, err := l.engine.Measure(deadline(t), nil)
		must(t, err)
		d := m[linkName][0]
		delivered = d.Delivered
		return d.Delivered+d.Dropped >= uint64(count)
	})
	buf := make([]byte, 100)
	for range delivered { // there is nothing else on a quiet link
		n, _, err := to.ReadFrom(buf)
		must(t, err)
		numbers = append(numbers, binary.BigEndian.Uint16(buf[:n]))
	}
	return numbers
}

// One engine records, another of a lab with another seed replays, and the same
// datagrams are lost.
func TestEnginesRecordAndReplay(t *testing.T) {
	const count = 200
	file := logFile(t)
	var usage *control.Error
	var want []uint16
	t.Run("record", func(t *testing.T) {
		l := newLab(t, 1500)
		l.quiet(t)
		if _, err := l.engine.Recorded(deadline(t)); err == nil {
			t.Error("an engine that does not record said what it recorded")
		}
		must(t, l.engine.Record(deadline(t), 42, file))
		l.attach(t, topology.Impairment{Loss: topology.Loss{Rate: 0.3}}, topology.Impairment{})
		want = arrivals(t, l, count)
		status, err := l.engine.Recorded(deadline(t))
		must(t, err)
		if status.Records < count || status.Missing != 0 || status.Error != "" {
			t.Errorf("recorded %+v", status)
		}
		if err := l.engine.Record(deadline(t), 42, file); !errors.As(err, &usage) || usage.Code != control.Usage {
			t.Errorf("recording twice: %v", err)
		}
	})
	t.Run("replay", func(t *testing.T) {
		_, err := file.Seek(0, io.SeekStart)
		must(t, err)
		l := newLab(t, 1500)
		l.quiet(t)
		log, err := l.engine.Replay(deadline(t), file)
		must(t, err)
		if diff := cmp.Diff(Log{Links: []string{linkName}}, log); diff != "" {
			t.Errorf("the log (-want +got):\n%s", diff)
		}
		link := l.link(topology.Impairment{}, topology.Impairment{})
		link.Seed = 43
		must(t, l.engine.Attach(deadline(t), link))
		must(t, l.engine.Start(deadline(t), linkName))
		if diff := cmp.Diff(want, arrivals(t, l, count)); diff != "" || len(want) == count {
			t.Errorf("what arrived (-recorded +replayed):\n%s", diff)
		}
		m, err := l.engine.Measure(deadline(t), nil)
		must(t, err)
		if r := m[linkName][0].Replayed; r.Packets < count || r.Diverged > 0 {
			t.Errorf("replayed %+v", r)
		}
	})
	t.Run("what is no log", func(t *testing.T) {
		_, err := file.Seek(3, io.SeekStart)
		must(t, err)
		if _, err := newLab(t, 1500).engine.Replay(deadline(t), file); !errors.As(err, &usage) || usage.Code != control.Usage {
			t.Errorf("what is no log was replayed: %v", err)
		}
	})
}
