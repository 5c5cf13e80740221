package linkem

import (
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/frame"
	"github.com/ndklab/ndklab/internal/fabric/trunk"
	"github.com/ndklab/ndklab/topology"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// linkNumber is that of the link between two hosts.
const linkNumber = 7

// crossing returns two benches with an end of a link each, whose loops do not run. The clock of the second is
// ahead by so much.
func crossing(t *testing.T, there topology.Impairment, ahead time.Duration) (here, far *bench) {
	t.Helper()
	benches := [2]*bench{}
	sockets := map[int][2]int{}
	for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM} {
		pair, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		must(t, err)
		sockets[kind] = pair
	}
	for i := range benches {
		b, ports := newBareBench(t, 1)
		q, err := b.trunks.add("other", sockets[unix.SOCK_STREAM][i], sockets[unix.SOCK_DGRAM][i])
		must(t, err)
		t.Cleanup(b.trunks.close)
		ports[1-i] = nil
		b.attach(t, Link{Name: "x", Seed: 1, Directions: [2]topology.Impairment{there}, Trunk: "other", Number: linkNumber}, ports)
		off := ahead
		if i == 1 {
			off = -ahead
		}
		q.offset.Add(trunk.Ping{Answer: true, Sent: time.Hour, Received: time.Hour + off, Answered: time.Hour + off}, time.Hour)
		q.agreed.Take(&q.offset, time.Hour, true)
		benches[i] = b
	}
	return benches[0], benches[1]
}

// take has a frame arrive at an instant, and cross if its link is between hosts.
func (b *bench) take(raw []byte, arrived time.Duration) {
	copied := b.ingress.staging[0].bytes[:copy(b.ingress.staging[0].bytes, raw)]
	b.ingress.handle(b.k.lines[0], 0, copied, arrived)
	b.trunks.flush(b.k.peer)
}

// carry takes what was shipped to the other host.
func carry(t *testing.T, here, far *bench) {
	t.Helper()
	q := here.trunks.byName["other"]
	for pending := true; pending; {
		pending = q.waits() > 0
		must(t, far.trunks.receive(far.trunks.byName["other"]))
		must(t, q.writePending(&here.poller))
	}
}

// A departure is that of a packet.
type departure struct {
	Arrived, At time.Duration
	Packet      []byte
	Mark        bool
}

// departures empties the line to the second end, and returns what would leave, in its order.
func (b *bench) departures() (all []departure) {
	n := b.k.lines[0]
	n.queue.merge(math.MaxInt64)
	runs := n.queue.upcoming()
	for _, r := range runs {
		for i := r.first; i < r.first+r.count; i++ {
			all = append(all, departure{r.held.arrived, r.departs, r.held.frame.AppendPacket(nil, int(i)), r.mark})
		}
	}
	b.egress.dequeue(n, len(runs))
	return all
}

// The same packets leave at the other host that would leave here, changed, doubled, marked and reordered alike, after
// the same decisions, each at the same instant of its own clock, and with the same figures.
func TestCrossing(t *testing.T) {
	const ahead = -17 * time.Hour
	settings := everyTime()
	settings.Loss, settings.Duplicate, settings.ECN = topology.Loss{Rate: 0.1}, 0.2, topology.ECN{Min: 3000, Max: 3000}
	settings.Reorder, settings.Corrupt = topology.Reorder{Probability: 0.1, Depth: 3}, topology.Corrupt{Probability: 0.1}
	play := func(b *bench) (log []byte) {
		b.k.lines[0].model.Set(settings, 0)
		file := logFile(t)
		recorder := b.record(file, recordBatch)
		for i := range 100 {
			raw := superPacket(10, 100)
			raw[len(raw)-1] = byte(i)
			raw[frame.HeaderLen+15] = 2 // ECN-capable
			b.take(raw, time.Duration(i)*7*time.Microsecond)
		}
		recorder.flushed()
		all, err := os.ReadFile(file.Name())
		must(t, err)
		return all
	}
	one := newBench(t, topology.Impairment{})
	whole := one.egress.memory.left
	oneLog := play(one)
	want := one.departures()

	here, far := crossing(t, topology.Impairment{}, ahead)
	log := play(here)
	carry(t, here, far)
	got := far.departures()
	for i := range got {
		got[i].Arrived -= ahead
		got[i].At -= ahead
	}
	marked := false
	for _, d := range want {
		marked = marked || d.Mark
	}
	if diff := cmp.Diff(want, got); diff != "" || !marked {
		t.Errorf("what leaves (-one host +two hosts):\n%s", diff)
	}
	if diff := cmp.Diff(string(oneLog), string(log)); diff != "" {
		t.Errorf("decisions (-one host +two hosts):\n%s", diff)
	}
	all, m, there := one.k.lines[0].measure(false), here.k.lines[0].measure(false), far.k.lines[0].measure(false)
	if diff := cmp.Diff(all, m); diff != "" || m.Duplicated == 0 || m.Corrupted == 0 || m.Reordered == 0 || m.Dropped == 0 || m.Marked == 0 || there.Packets != 0 {
		t.Errorf("measured (-one host +two hosts):\n%s\nat the other host %+v", diff, there)
	}
	for _, b := range []*bench{one, here, far} {
		if b.egress.memory.left != whole-bufferLen && b.egress.memory.left != whole { // one buffer may be shared by the next short frames
			t.Errorf("%d bytes of the budget are left, want %d", b.egress.memory.left, whole)
		}
	}
}

// Clocks are known after some pings, not after one that may have taken long.
func TestTrunkMeets(t *testing.T) {
	here, far := crossing(t, topology.Impairment{}, 0)
	q := here.trunks.byName["other"]
	questions := 0
	for met := false; !met && questions <= firstPings; questions++ {
		far.trunks.takePings(far.trunks.byName["other"])
		here.trunks.takePings(q)
		select {
		case <-q.met:
			met = true
		default:
		}
	}
	if questions != firstPings {
		t.Errorf("after %d pings, want %d", questions, firstPings)
	}
}

// Frames that cross are not let wait where there is no time left for it: the path takes some of the delay.
func TestTrunkDelays(t *testing.T) {
	settings := topology.Impairment{Delay: coalesceTime + time.Millisecond}
	here, _ := crossing(t, settings, 0)
	for _, n := range here.k.lines {
		n.model.Set(settings, 0)
	}
	now := time.Hour
	for _, c := range []struct {
		trip    time.Duration
		delayed bool
	}{{time.Millisecond, false}, {time.Millisecond - 1, true}} {
		here.trunks.byName["other"].offset = trunk.Offset{}
		here.trunks.byName["other"].offset.Add(trunk.Ping{Answer: true, Sent: now - c.trip, Received: now, Answered: now}, now)
		here.poller.delayKnown = false
		if got := here.poller.delayed(); got != c.delayed {
			t.Errorf("a trip of %v: %v, want %v", c.trip, got, c.delayed)
		}
	}
}

// A trunked is a lab whose middles are the ends of a link between two engines, as those of two hosts.
type trunked struct {
	*lab
	far    *Engine // which has the second node
	farLab *lab
	stream [2]*net.TCPConn // of the trunk
}

func newTrunked(tb testing.TB, there, back topology.Impairment) *trunked {
	tb.Helper()
	l := &trunked{lab: newLab(tb, 4200), farLab: &lab{}}
	l.farLab.startEngine(tb)
	l.far = l.farLab.engine
	lo, err := netlink.LinkByName("lo")
	must(tb, err)
	must(tb, netlink.LinkSetUp(lo))
	l.join(tb)
	for i, e := range []*Engine{l.engine, l.far} {
		spec := l.link(there, back)
		spec.Interfaces[1-i] = ""
		spec.Trunk, spec.Number = "other", linkNumber
		must(tb, e.Attach(deadline(tb), spec))
		must(tb, e.Start(deadline(tb), linkName))
	}
	return l
}

// join joins the engines by a trunk over loopback.
func (l *trunked) join(tb testing.TB) {
	tb.Helper()
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	must(tb, err)
	defer listener.Close()
	l.stream[0], err = net.DialTCP("tcp", nil, listener.Addr().(*net.TCPAddr))
	must(tb, err)
	l.stream[1], err = listener.AcceptTCP()
	must(tb, err)
	here, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	must(tb, err)
	there, err := net.DialUDP("udp", nil, here.LocalAddr().(*net.UDPAddr))
	must(tb, err)
	address := there.LocalAddr().(*net.UDPAddr)
	raw, err := here.SyscallConn()
	must(tb, err)
	must(tb, raw.Control(func(fd uintptr) {
		must(tb, unix.Connect(int(fd), &unix.SockaddrInet4{Port: address.Port, Addr: [4]byte{127, 0, 0, 1}}))
	}))
	joined := make(chan error, 2)
	for i, e := range []*Engine{l.engine, l.far} {
		stream, err := l.stream[i].File()
		must(tb, err)
		datagrams, err := []*net.UDPConn{here, there}[i].File()
		must(tb, err)
		go func() {
			joined <- e.Trunk(deadline(tb), "other", stream, datagrams)
			stream.Close()
			datagrams.Close()
		}()
	}
	for range 2 {
		must(tb, <-joined)
	}
	here.Close()
	there.Close()
	tb.Cleanup(func() {
		for _, s := range l.stream {
			s.Close()
		}
	})
}

// closeOwn closes the test's own descriptors of the trunk, so that the engines alone have it.
func (l *trunked) closeOwn(tb testing.TB) {
	tb.Helper()
	for _, s := range l.stream {
		must(tb, s.Close())
	}
}

// Super-packets and TCP cross two hosts unaltered and in order, and the figures of both add up.
func TestTrafficCrossesHosts(t *testing.T) {
	for _, network := range []string{"udp4", "udp6"} {
		t.Run(network, func(t *testing.T) {
			l := newTrunked(t, topology.Impairment{Delay: time.Millisecond, Jitter: topology.Jitter{Spread: 50 * time.Microsecond}, Rate: 1e9}, topology.Impairment{})
			next := uint64(0)
			want := make([]byte, datagram)
			sendSupers(t, l.lab, network, 20, func(number uint64, payload []byte) {
				fillPattern(want, next)
				if number != next || !bytes.Equal(payload, want) {
					t.Fatalf("got datagram %d of %d bytes, want %d unaltered", number, len(payload), next)
				}
				next++
			})
			counts, err := l.engine.Trunks(deadline(t)) // before what IPv6 sends by itself has no link any more
			must(t, err)
			m, err := l.engine.Detach(deadline(t), linkName)
			must(t, err)
			far, err := l.far.Detach(deadline(t), linkName)
			must(t, err)
			if m[0].Packets < next || m[0].Delivered != 0 || far[0].Packets != 0 || far[0].Delivered < next || far[0].LostOverrun != 0 || far[1].Packets == 0 || m[1].Delivered == 0 {
				t.Errorf("measured %+v, and at the other host %+v", m, far)
			}
			if c := counts["other"]; c.Frames == 0 || c.Bytes < next*datagram || c.Trip <= 0 || c.Wrong <= 0 || c.Strays != 0 {
				t.Errorf("trunk: %+v", c)
			}
		})
	}
	t.Run("tcp", func(t *testing.T) {
		streams(t, newTrunked(t, topology.Impairment{Delay: 200 * time.Microsecond}, topology.Impairment{}).lab, "tcp4", 8<<20)
	})
}

// The time that frames take to the other host is no part of the delay.
func TestDelayAcrossHosts(t *testing.T) {
	const there, back = time.Millisecond, 2 * time.Millisecond
	l := newTrunked(t, topology.Impairment{Delay: there}, topology.Impairment{Delay: back})
	var late []time.Duration
	echoes(t, l.lab, func(rtt time.Duration) bool {
		late = append(late, rtt-there-back)
		return len(late) < 200
	})
	counts, err := l.engine.Trunks(deadline(t))
	must(t, err)
	// The estimates of both clocks may be wrong, either way.
	wrong := counts["other"].Wrong
	for i := range late {
		late[i] += 2 * wrong
	}
	slices.Sort(late)
	if late[0] < 0 || late[0] > promptness+4*wrong {
		t.Errorf("of %d the least late by %v, with clocks right to %v; the median by %v", len(late), late[0]-2*wrong, wrong, late[len(late)/2])
	}
}

// A trunk that is cut is told, what is sent over it is lost and counted, and the engines go on.
func TestTrunkIsCut(t *testing.T) {
	l := newTrunked(t, topology.Impairment{}, topology.Impairment{})
	ends := make(chan error, 2)
	for _, e := range []*Engine{l.engine, l.far} {
		go func() { ends <- e.AwaitTrunkEnd(deadline(t), "other") }()
	}
	must(t, l.stream[0].CloseWrite()) // of the socket that the engine has, too
	must(t, l.stream[1].CloseWrite())
	for range 2 {
		if err := <-ends; err == nil || !strings.HasPrefix(err.Error(), "trunk to other: ") {
			t.Errorf("%v", err)
		}
	}
	from, to := l.nodes[0].udp(t, "udp4"), l.nodes[1].udp(t, "udp4")
	eventually(t, func() bool {
		_, err := from.WriteTo([]byte("lost"), to.LocalAddr())
		must(t, err)
		m, err := l.engine.Measure(deadline(t), nil)
		must(t, err)
		return m[linkName][0].LostDown > 0
	})
}

// An engine that ends, or is killed, ends its trunks.
func TestTrunkPeerIsKilled(t *testing.T) {
	l := newTrunked(t, topology.Impairment{}, topology.Impairment{})
	l.closeOwn(t)
	must(t, l.farLab.cmd.Process.Kill())
	if err := l.engine.AwaitTrunkEnd(deadline(t), "other"); err == nil || !strings.Contains(err.Error(), io.EOF.Error()) && !strings.Contains(err.Error(), syscall.ECONNRESET.Error()) {
		t.Error(err)
	}
}

// Frames that a peer does not take in time are lost once too much of them waits, and counted; those that it takes later arrive.
func TestTrunkIsSlow(t *testing.T) {
	l := newTrunked(t, topology.Impairment{}, topology.Impairment{})
	must(t, l.farLab.cmd.Process.Signal(syscall.SIGSTOP))
	from, to := l.nodes[0].udp(t, "udp4"), l.nodes[1].udp(t, "udp4")
	segment(t, from, datagram)
	l.quiet(t)
	buf := make([]byte, super)
	eventually(t, func() bool {
		for range 100 {
			_, err := from.WriteTo(buf, to.LocalAddr())
			must(t, err)
		}
		m, err := l.engine.Measure(deadline(t), nil)
		must(t, err)
		counts, err := l.engine.Trunks(deadline(t))
		must(t, err)
		return m[linkName][0].LostOverrun > 0 && counts["other"].Pending > maxPending
	})
	counts, err := l.engine.Trunks(deadline(t))
	must(t, err)
	if most := maxPending + receiveBatch*trunk.MaxLen; counts["other"].Pending > most {
		t.Errorf("%d bytes have waited, want at most %d", counts["other"].Pending, most)
	}
	must(t, l.farLab.cmd.Process.Signal(syscall.SIGCONT))
	eventually(t, func() bool {
		m, err := l.far.Measure(deadline(t), nil)
		must(t, err)
		return m[linkName][0].Delivered > 1000
	})
}

// A peer that sends nonsense loses the trunk; the engine goes on.
func TestTrunkNonsense(t *testing.T) {
	l := newTrunked(t, topology.Impairment{}, topology.Impairment{})
	_, err := l.stream[1].Write(bytes.Repeat([]byte{0xff}, 100))
	must(t, err)
	if err := l.engine.AwaitTrunkEnd(deadline(t), "other"); err == nil || !strings.Contains(err.Error(), "trunk to other: a message of 4294967295 bytes") {
		t.Error(err)
	}
	_, err = l.engine.Measure(deadline(t), nil)
	must(t, err)
}

// Frames of a peer for links that are not there, and with packets that they do not have, do no harm.
func TestTrunkStrays(t *testing.T) {
	here, far := crossing(t, topology.Impairment{}, 0)
	q := far.trunks.byName["other"]
	send := func(f trunk.Frame) error {
		_, err := unix.Write(here.trunks.byName["other"].stream, trunk.AppendOwn(append(trunk.AppendHead(nil, &f), f.Bytes...), &f))
		must(t, err)
		return far.trunks.receive(q)
	}
	raw := superPacket(3, 100)
	must(t, send(trunk.Frame{Link: 99, Bytes: raw, Runs: []trunk.Run{{Count: 1}}}))
	must(t, send(trunk.Frame{Link: linkNumber, Direction: 1, Bytes: raw, Runs: []trunk.Run{{Count: 1}}}))
	if q.counts.Strays != 2 || !far.k.lines[0].queue.empty() || !far.k.lines[1].queue.empty() {
		t.Errorf("%+v", q.counts)
	}
	for _, r := range []trunk.Run{{First: 3, Count: 1}, {First: 2, Count: 2}, {Count: 0}, {First: 65535, Count: 65535}} {
		if err := send(trunk.Frame{Link: linkNumber, Bytes: raw, Runs: []trunk.Run{r}}); err != errRuns {
			t.Errorf("%+v: %v", r, err)
		}
	}
	if err := send(trunk.Frame{Link: linkNumber, Bytes: []byte("short"), Runs: []trunk.Run{{Count: 1}}}); err == nil {
		t.Error("a frame that is none is taken")
	}
	own := bytes.Clone(superPacket(1, 100))
	clear(own[:frame.HeaderLen]) // one packet
	must(t, send(trunk.Frame{Link: linkNumber, Runs: []trunk.Run{{Count: 1, Mark: true, Own: own}}}))
	n := far.k.lines[0]
	if far.egress.send(n); !n.queue.empty() || n.stats.Counts.Lost() > 0 {
		t.Error("a packet of its own that is marked has not left")
	}
}

// A frame of very many packets, each of which leaves by itself, crosses in several messages.
func TestTrunkOfManyPackets(t *testing.T) {
	const packets = trunk.MaxRuns + trunk.MaxRuns/2
	here, far := crossing(t, topology.Impairment{}, 0)
	here.k.lines[0].model.Set(topology.Impairment{Rate: 1_000_000_000}, 0)
	here.take(superPacket(packets, 1), time.Hour)
	carry(t, here, far)
	if left := far.departures(); len(left) != packets {
		t.Errorf("%d packets leave, want %d", len(left), packets)
	}
}

// Pings that come without end do not keep the engine, and nobody is believed who was not asked.
func TestTrunkPings(t *testing.T) {
	here, far := crossing(t, topology.Impairment{}, 0)
	q := here.trunks.byName["other"]
	tell := func(p trunk.Ping) {
		_, err := unix.Write(far.trunks.byName["other"].pings, p.Append(nil))
		must(t, err)
	}
	far.trunks.takePings(far.trunks.byName["other"]) // the first, which here answers
	here.trunks.takePings(q)
	before, answers := q.offset, q.answers
	tell(trunk.Ping{Answer: true, Sent: time.Hour, Received: 2 * time.Hour, Answered: 2 * time.Hour, Knows: true, Ahead: time.Hour})
	here.trunks.takePings(q)
	if q.offset != before || q.answers != answers || q.agreed.Ahead() != 0 && q.agreed.Ahead().Abs() > time.Minute {
		t.Errorf("the peer's clock is ahead by %v, %v before, for an answer that nobody asked for", q.agreed.Ahead(), before.Ahead())
	}

	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0) // which holds very many
	must(t, err)
	many, flood := pair[0], pair[1]
	defer unix.Close(many)
	defer unix.Close(flood)
	sent := 0
	for range 3 * pingsAtOnce {
		_, err := unix.Write(flood, (&trunk.Ping{Answer: true}).Append(nil))
		must(t, err)
		sent++
	}
	own := q.pings
	q.pings = many
	here.trunks.takePings(q)
	q.pings = own
	left := 0
	for b := make([]byte, trunk.PingLen); ; left++ {
		if _, errno := readNow(many, b); errno != 0 {
			break
		}
	}
	if sent-left != pingsAtOnce {
		t.Errorf("%d pings were taken at once, want %d", sent-left, pingsAtOnce)
	}
}

// Bytes that wait for a stream are moved in memory about once, however little the stream takes at a time, and come whole.
func TestTrunkCatchesUp(t *testing.T) {
	const size = 16 << 20
	here, far := crossing(t, topology.Impairment{}, 0)
	q, from := here.trunks.byName["other"], far.trunks.byName["other"].stream
	for i := range size / 4 {
		q.pending = binary.LittleEndian.AppendUint32(q.pending, uint32(i))
	}
	moves, writes := 0, 0
	var got []byte
	room := make([]byte, 64<<10)
	for q.waits() > 0 || len(got) < size {
		before := q.written
		must(t, q.writePending(&here.poller))
		if writes++; q.written <= before && q.waits() > 0 {
			moves++
		}
		n, errno := readNow(from, room)
		if errno != 0 {
			t.Fatal(errno)
		}
		got = append(got, room[:n]...)
	}
	if moves > 30 || writes < 100 {
		t.Errorf("moved %d times in %d writes", moves, writes)
	}
	for i := range size / 4 {
		if n := binary.LittleEndian.Uint32(got[4*i:]); n != uint32(i) {
			t.Fatalf("word %d is %d", i, n)
		}
	}
}

// Requests that make no sense for a link between hosts are refused.
func TestTrunkUsage(t *testing.T) {
	l := newTrunked(t, topology.Impairment{}, topology.Impairment{})
	usage := func(what, text string, err error) {
		t.Helper()
		if control.CodeOf(err) != control.Usage || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v, want %q", what, err, text)
		}
	}
	usage("release", "link a:eth0 is between hosts", l.engine.Release(deadline(t), linkName))
	usage("await", "no trunk to nobody", l.engine.AwaitTrunkEnd(deadline(t), "nobody"))
	usage("attach", "no trunk to nobody", l.engine.Attach(deadline(t), Link{Name: "b:eth0", Interfaces: [2]string{"m1"}, Trunk: "nobody"}))
	usage("both ends", "cannot be between hosts", l.engine.Attach(deadline(t), Link{Name: "b:eth0", Interfaces: [2]string{"m0", "m1"}, Trunk: "other"}))
	usage("number", "link b:eth0 has the number of a:eth0", l.engine.Attach(deadline(t), Link{Name: "b:eth0", Interfaces: [2]string{"m1"}, Trunk: "other", Number: linkNumber}))
	file := logFile(t)
	usage("file", "no socket", l.engine.Trunk(deadline(t), "third", file, file))
	stream, err := l.stream[0].File()
	must(t, err)
	defer stream.Close()
	usage("stream twice", "no socket of type 2", l.engine.Trunk(deadline(t), "third", stream, stream))
}

// The number of a link between hosts is another link's once it is detached, and not before. A link whose other end has come to
// this host has no trunk any more.
func TestNumberGivenAgain(t *testing.T) {
	here, _ := crossing(t, topology.Impairment{}, 0)
	_, ports := newBareBench(t, 1)
	other := Link{Name: "y", Seed: 1, Trunk: "other", Number: linkNumber}
	err := here.links.attach(other, [2]*port{ports[0]})
	if err == nil || !strings.Contains(err.Error(), "link y has the number of x") {
		t.Errorf("%v", err)
	}
	here.k.state = detached
	must(t, here.links.attach(other, [2]*port{ports[0]}))
	must(t, here.links.attach(Link{Name: "x", Seed: 1}, ports))
	q := here.trunks.byName["other"]
	if x := here.links.byName["x"]; x.peer != nil || x.lines[0].far || x.lines[1].far {
		t.Error("a link within this host has a trunk")
	}
	if q.links[linkNumber] != here.links.byName["y"] {
		t.Errorf("link %d of the trunk is not the one that has the number now", linkNumber)
	}
}
