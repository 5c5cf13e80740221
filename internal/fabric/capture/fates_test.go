package capture

import (
	"bytes"
	"context"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/ndklab/ndklab/internal/fabric/linkem/tap"
	"github.com/ndklab/ndklab/internal/topology/filter"
)

// recorded says what a file has of a packet.
type recorded struct {
	Interface string
	Sent      bool // rather than received
	Length    int
	Comment   string
}

func readRecords(t *testing.T, file []byte) (all []recorded) {
	t.Helper()
	r, err := pcapgo.NewNgReader(bytes.NewReader(file), pcapgo.DefaultNgReaderOptions)
	must(t, err)
	before := time.Time{}
	for {
		_, info, options, err := r.ReadPacketDataWithOptions()
		if err == io.EOF {
			return all
		}
		must(t, err)
		iface, err := r.Interface(info.InterfaceIndex)
		must(t, err)
		p := recorded{Interface: iface.Name, Sent: options.Flags.Direction == pcapgo.NgEpbFlagDirectionOutbound, Length: info.Length}
		if !p.Sent && options.Flags.Direction != pcapgo.NgEpbFlagDirectionInbound {
			t.Errorf("packet %d has direction %d", len(all)+1, options.Flags.Direction)
		}
		if len(options.Comments) > 0 {
			p.Comment = options.Comments[0]
		}
		if info.Timestamp.Before(before) {
			t.Errorf("packet %d is older than the one before", len(all)+1)
		}
		all, before = append(all, p), info.Timestamp
	}
}

// A tap's reports on the packets that an interface sends become their comments,
// whether a report comes before its packet or after; packets from the other end have none.
// Interfaces are recorded in the order of time, and the filter sees single packets.
func TestFates(t *testing.T) {
	wire(t)
	near, err := Open("near")
	must(t, err)
	far, err := Open("far")
	must(t, err)
	read, write, err := os.Pipe()
	must(t, err)
	sent := sendSuper(t)
	stamp := time.Now().UnixNano()
	stream := tap.Append(nil, &tap.Packet{})
	tell := func(packet []byte, direction int, departs time.Duration, comment string, missed uint32) {
		p := tap.Packet{Direction: direction, Stamp: stamp, Comment: comment, Missed: missed, Size: len(packet), Frame: packet[:min(len(packet), TapLength)]}
		if departs > 0 {
			p.Departs = stamp + int64(departs)
		}
		stream = tap.Append(stream, &p)
	}
	packets := wanted(sent)
	tell(packets[0], 1, 0, "dropped: loss", 0) // somebody else's of the same bytes
	tell(packets[0], 0, 0, "dropped: loss", 0)
	tell(packets[1], 0, 150*time.Microsecond, "duplicated", 0)
	tell(packets[2], 0, time.Millisecond, "", 0)
	tell(packets[4], 0, 0, "dropped: queue full", 2) // of packets[3] it does not tell
	_, err = write.Write(stream)
	must(t, err)
	must(t, write.Close())
	// The far end has the same from its tap, and has sent nothing.
	farRead, farWrite, err := os.Pipe()
	must(t, err)
	_, err = farWrite.Write(stream)
	must(t, err)
	must(t, farWrite.Close())

	few, err := filter.Parse("less 1100")
	must(t, err)
	sources := []Source{{Name: "far", Socket: far, Tap: farRead, Direction: 1, Carried: true}, {Name: "near", Socket: near, Tap: read, Carried: true}}
	var file bytes.Buffer
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	counts, err := Run(ctx, sources, Stream(&file), Options{Filter: few})
	must(t, err)
	if counts[1] != (Counts{Packets: perSuper, Fateless: 2}) {
		t.Errorf("counts %+v", counts[1])
	}
	full, last := len(packets[0]), len(packets[perSuper-1])
	want := []recorded{
		{"near", true, full, "dropped: loss"}, {"near", true, full, "duplicated, delayed 150us"}, {"near", true, full, "delayed 1ms"}, {"near", true, full, ""},
		{"near", true, last, "dropped: queue full"},
		{"far", false, full, ""}, {"far", false, full, ""}, {"far", false, full, ""}, {"far", false, full, ""}, {"far", false, last, ""},
	}
	got := readRecords(t, file.Bytes())
	slices.SortStableFunc(got, func(a, b recorded) int { return strings.Compare(b.Interface, a.Interface) }) // the clock may not tell near from far
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("packets (-want +got):\n%s", diff)
	}
}

// A filter that decided on super-packets would take all or none of these.
func TestFilterSeesSinglePackets(t *testing.T) {
	wire(t)
	last, err := filter.Parse("udp port 4791 and less 400")
	must(t, err)
	var file bytes.Buffer
	counts, err := sendAndRecord(t, Stream(&file), 1, Options{Filter: last})
	must(t, err)
	if counts[0] != (Counts{Packets: 1, Other: perSuper - 1}) || len(readRecords(t, file.Bytes())) != 1 {
		t.Errorf("counts %+v", counts[0])
	}
}

// A packet waits for its decision while an engine has its link and may be busy, and
// for as long as the tap has something to say that has not come here: in the socket, or on
// its way from there. So does one of a link that no engine is known to have, since the
// first that the tap says is that one has. Else it does not.
func TestFatesAreWaitedFor(t *testing.T) {
	const came = int64(time.Hour)
	soon, late := came+int64(200*time.Millisecond), came+int64(300*time.Millisecond)
	for _, c := range []struct {
		name   string
		come   progress
		unread bool
		onWay  int32
		now    int64
		want   bool
	}{
		{name: "no engine", now: came, want: true},
		{name: "engine busy", come: progress{at: 1}, now: soon},
		{name: "engine silent", come: progress{at: 1}, now: late, want: true},
		{name: "engine behind", come: progress{at: came + int64(100*time.Millisecond), told: came - 1}, now: late},
		{name: "told of later ones", come: progress{at: came, told: came + int64(skew) + 1}, now: came, want: true},
		{name: "unread", come: progress{at: 1}, unread: true, now: late},
		{name: "on its way", come: progress{at: 1}, onWay: 1, now: late},
		{name: "first unread", unread: true, now: late},
		{name: "first on its way", onWay: 1, now: late},
	} {
		read, write, err := os.Pipe()
		must(t, err)
		if c.unread {
			_, err := write.Write([]byte{0})
			must(t, err)
		}
		r := newRecorder([]Source{{Tap: read}}, newChunks(1), Stream(io.Discard), Options{})
		r.come[0] = c.come
		r.fates.behind[0].Add(c.onWay)
		if got := r.decided(&held{key: 1, stamp: came, since: came}, c.now); got != c.want {
			t.Errorf("%s: decided %v", c.name, got)
		}
		must(t, r.end())
		must(t, read.Close())
		must(t, write.Close())
	}
}

// A packet that an engine decided on gets its comment however late what the tap says,
// that there is an engine and then the decision, is read and passed on.
func TestFirstFatesAreSlow(t *testing.T) {
	read, write, err := os.Pipe()
	must(t, err)
	defer read.Close()
	var file bytes.Buffer
	source := Source{Name: "near", Tap: read}
	r := newRecorder([]Source{source}, newChunks(1), Stream(&file), Options{})
	r.begin()
	packet := make([]byte, 60)
	old := time.Now().Add(-time.Minute).UnixNano()
	h := r.waiting[0].add(packet, old)
	h.since, h.length = old, len(packet)
	r.pairs.packet(h, signature(0, packet, len(packet)))
	wait := func(why string) {
		t.Helper()
		if r.write(false); r.written > 0 {
			t.Fatal("it was written " + why)
		}
	}
	stream := tap.Append(nil, &tap.Packet{})
	stream = tap.Append(stream, &tap.Packet{Stamp: old, Comment: "dropped: loss", Size: len(packet), Frame: packet})
	_, err = write.Write(stream)
	must(t, err)
	must(t, write.Close())
	wait("while the tap is unread")
	r.fates.read(t.Context(), &source, 0, newChunks(1)) // up to the end of the stream
	wait("while the decision is on its way")
	for len(r.fates.told) > 0 {
		r.decide(<-r.fates.told)
	}
	if behind := r.fates.behind[0].Load(); behind != 0 {
		t.Errorf("%d reads are on their way still", behind)
	}
	if h.comment != "dropped: loss" {
		t.Errorf("the comment is %q", h.comment)
	}
	r.write(true)
	must(t, r.end())
	if got := readRecords(t, file.Bytes()); len(got) != 1 || got[0].Comment != "dropped: loss" {
		t.Errorf("written: %+v", got)
	}
}

// Packets of sources that are read at different speeds are written in the order of time:
// one that is older may still be in another's socket, or on its way from there.
func TestOrderOfSources(t *testing.T) {
	read, write, err := os.Pipe()
	must(t, err)
	defer read.Close()
	defer write.Close()
	chunks := newChunks(2)
	var file bytes.Buffer
	r := newRecorder([]Source{{Name: "fast"}, {Name: "slow", Socket: read}}, chunks, Stream(&file), Options{})
	r.begin()
	old := time.Now().Add(-time.Minute).UnixNano()
	h := r.waiting[0].add([]byte("a packet that waits"), old)
	h.since = old
	wait := func(why string) {
		t.Helper()
		if r.write(false); r.written > 0 {
			t.Fatal("it was written " + why)
		}
	}
	_, err = write.Write([]byte{0})
	must(t, err)
	wait("while a frame of the other is in its socket")
	chunks.out[1].Add(1)
	_, err = read.Read(make([]byte, 1))
	must(t, err)
	wait("while a frame of the other is on its way")
	chunks.out[1].Add(-1)
	if r.write(false); r.written != 1 {
		t.Error("it was not written in the end")
	}
	must(t, r.end())
}

// Equal packets meet decisions in their order; packets that have none, and decisions
// whose packets had no room, are forgotten.
func TestPairs(t *testing.T) {
	p := newPairs()
	comments := func(hs ...*held) (all []string) {
		for _, h := range hs {
			all = append(all, h.comment)
		}
		return all
	}
	a, b, c, d := new(held), new(held), new(held), new(held)
	p.decision(decision{key: 1, comment: "first"}, 0)
	p.packet(a, 1)
	p.packet(b, 1)
	p.packet(c, 1)
	p.packet(d, 1)
	p.giveUp(c) // written without one
	p.decision(decision{key: 1, comment: "second"}, 0)
	p.decision(decision{key: 1, comment: "third"}, 0)
	p.decision(decision{key: 1, comment: "too many", stamp: 10}, 100)
	if diff := cmp.Diff([]string{"first", "second", "", "third"}, comments(a, b, c, d)); diff != "" {
		t.Error(diff)
	}
	p.decision(decision{key: 2, comment: "newer", stamp: 20 + int64(skew)}, 100)
	if len(p.decisions) != 2 || len(p.packets) != 0 {
		t.Errorf("%d decisions and %d packets wait, want 2 and none", len(p.decisions), len(p.packets))
	}
	p.expire([]progress{{taken: 11 + int64(skew)}}, 50) // the socket has come past the first
	if p.decisions[1] != nil || p.decisions[2] == nil {
		t.Error("the wrong decision was forgotten")
	}
	p.expire([]progress{{}}, 101)
	if len(p.decisions) != 0 || p.oldest != nil || p.newest != nil {
		t.Error("the last decision was not forgotten")
	}
}
