package capture

import (
	"bytes"
	"encoding/binary"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// openRecent is a Recent of an interface.
func openRecent(t testing.TB, iface string, size int) *Recent {
	t.Helper()
	socket, err := RecentSocket()
	must(t, err)
	link, err := netlink.LinkByName(iface)
	must(t, err)
	r, err := OpenRecent(socket, link.Attrs().Index, iface, size)
	must(t, err)
	t.Cleanup(func() { must(t, r.Close()) })
	return r
}

// recalls waits until a Recent has a frame that ok likes, and returns all that it has.
func recalls(t *testing.T, r *Recent, ok func(*Recalled) bool) []Recalled {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.After(time.Minute)
	for {
		frames := r.recall(nil)
		for i := range frames {
			if ok(&frames[i]) {
				return frames
			}
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("of %d frames none is the one", len(frames))
		}
	}
}

// sendNumber sends a datagram to a port with a number at the offset of the payload, and
// zeros up to a length.
func sendNumber(t *testing.T, port int, length, offset int, number uint32) {
	t.Helper()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(10, 0, 0, 1)})
	must(t, err)
	defer conn.Close()
	b := make([]byte, length)
	binary.BigEndian.PutUint32(b[offset:], number)
	_, err = conn.WriteTo(b, &net.UDPAddr{IP: net.IPv4(10, 0, 0, 2), Port: port})
	must(t, err)
}

const headers = 14 + 20 + 8 // before the payload of UDP

// The beginning of each frame that comes in is kept, with its length. A super-packet is kept
// as one frame, which the file says. Frames that go out are not kept.
func TestRecent(t *testing.T) {
	wire(t)
	near, far := openRecent(t, "near", 1<<20), openRecent(t, "far", 1<<20)
	began := time.Now()
	sent := sendSuper(t)
	frames := recalls(t, far, func(f *Recalled) bool { return f.Length == headers+payload })
	f := &frames[len(frames)-1]
	if len(f.Data) != recentLength || !bytes.Equal(f.Data[headers:], sent[:recentLength-headers]) {
		t.Errorf("kept % x", f.Data)
	}
	if at := time.Unix(0, f.Stamp); at.Before(began) || at.After(time.Now()) {
		t.Errorf("it came at %v, and was sent after %v", at, began)
	}
	if got := near.recall(nil); len(got) > 0 {
		t.Errorf("kept %d frames that went out", len(got))
	}
	var file bytes.Buffer
	must(t, WriteRecent(&file, []*Recent{near, far}))
	if packets, _ := readBack(t, file.Bytes()); len(packets) != len(frames) {
		t.Errorf("the file has %d packets, want %d", len(packets), len(frames))
	}
	if !bytes.Contains(file.Bytes(), []byte("the first of 5 packets of a super-packet")) {
		t.Error("the file does not say how many packets the super-packet is")
	}
}

// Of connection management, all is kept.
func TestRecentManagement(t *testing.T) {
	wire(t)
	r := openRecent(t, "far", 1<<20)
	const ofQP = 4 // the word of the BTH whose last 24 bits it is
	for _, qp := range []uint32{1, 2} {
		sendNumber(t, 4791, 280, ofQP, 0xab<<24|qp)
	}
	kept := map[uint32]int{}
	recalls(t, r, func(f *Recalled) bool {
		if f.Length == headers+280 {
			kept[binary.BigEndian.Uint32(f.Data[headers+ofQP:])&0xffffff] = len(f.Data)
		}
		return len(kept) == 2
	})
	if kept[1] != headers+280 || kept[2] != recentLength {
		t.Errorf("bytes kept by QP: %v", kept)
	}
}

// The oldest make room for the most recent.
func TestRecentTurns(t *testing.T) {
	wire(t)
	r := openRecent(t, "far", 4*pageSize)
	const sent = 1000
	for i := range sent {
		sendNumber(t, 9, 64, 0, uint32(i+1))
		r.Turn()
	}
	number := func(f *Recalled) uint32 { return binary.BigEndian.Uint32(f.Data[headers:]) }
	frames := recalls(t, r, func(f *Recalled) bool { return f.Length == headers+64 && number(f) == sent })
	if first := number(&frames[0]); first == 1 {
		t.Error("the first frame has never made room")
	}
	for i := 1; i < len(frames); i++ {
		if number(&frames[i]) != number(&frames[i-1])+1 {
			t.Fatalf("frame %d is followed by %d", number(&frames[i-1]), number(&frames[i]))
		}
	}
	var file bytes.Buffer
	must(t, WriteRecent(&file, []*Recent{r}))
	if packets, _ := readBack(t, file.Bytes()); len(packets) != len(frames) {
		t.Errorf("the file has %d packets, want %d", len(packets), len(frames))
	}
}

// An interface may go and come again.
func TestRecentBindsAgain(t *testing.T) {
	wire(t)
	dummy := func() {
		t.Helper()
		veth := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: "other"}
		veth.Name, veth.Index = "again", 4000
		must(t, netlink.LinkAdd(veth))
		for _, name := range []string{"again", "other"} {
			link, err := netlink.LinkByName(name)
			must(t, err)
			must(t, netlink.LinkSetUp(link))
		}
	}
	remove := func() {
		t.Helper()
		must(t, netlink.LinkDel(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "again", Index: 4000}}))
	}
	dummy()
	r := openRecent(t, "again", 1<<20)
	remove()
	socket, err := RecentSocket()
	must(t, err)
	absent, err := OpenRecent(socket, 4000, "again", 1<<20)
	must(t, err)
	must(t, absent.Close())
	if err := r.Bind(); err == nil {
		t.Error("it is at an interface that is not there")
	}
	dummy()
	t.Cleanup(remove)
	must(t, r.Bind())
	// The kernel looks for neighbours when an interface comes up.
	recalls(t, r, func(f *Recalled) bool { return binary.BigEndian.Uint16(f.Data[12:]) == 0x86dd })
}

// BenchmarkRecent measures the time that a super-packet takes of its sender's processor, as
// far as the far end of the wire, without and with a Recent there.
func BenchmarkRecent(b *testing.B) {
	for _, remembered := range []bool{false, true} {
		b.Run(map[bool]string{false: "without", true: "with"}[remembered], func(b *testing.B) {
			wire(b)
			if remembered {
				r := openRecent(b, "far", 4<<20)
				over := make(chan struct{})
				turned := make(chan struct{})
				go func() {
					defer close(turned)
					tick := time.NewTicker(10 * time.Millisecond)
					defer tick.Stop()
					for {
						select {
						case <-tick.C:
							r.Turn()
						case <-over:
							return
						}
					}
				}()
				defer func() { close(over); <-turned }()
			}
			conn := super(b, 1400)
			defer conn.Close()
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			message := make([]byte, 40*1400)
			to := &net.UDPAddr{IP: net.IPv4(10, 0, 0, 2), Port: 4791}
			began := processorTime(b)
			for b.Loop() {
				if _, err := conn.WriteTo(message, to); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(processorTime(b)-began)/float64(b.N), "cpu-ns/op")
		})
	}
}

// processorTime returns the time for which the calling thread has run, ns.
func processorTime(b *testing.B) int64 {
	var at unix.Timespec
	must(b, unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &at))
	return at.Nano()
}
