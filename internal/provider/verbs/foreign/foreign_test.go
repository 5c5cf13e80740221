package foreign

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"golang.org/x/sys/unix"
)

// other is set in the other process.
const other = "NDKLAB_TEST_OTHER_PROCESS"

// size is the length of the other process's memory, in bytes: two pages, or more where they are small.
const size = 2 << 16

func TestMain(m *testing.M) {
	if os.Getenv(other) != "" {
		if err := own(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// own is the other process: it says where its memory is, which has the bytes 0, 1, 2 and so on, and then does as it is
// told: "show" prints all of it, "unmap" has its second half be gone, and the end of what it is told is its own.
func own(told io.Reader, says io.Writer) error {
	memory, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	for i := range memory {
		memory[i] = byte(i)
	}
	fmt.Fprintf(says, "%d\n", uintptr(unsafe.Pointer(unsafe.SliceData(memory))))
	for lines := bufio.NewScanner(told); lines.Scan(); {
		switch lines.Text() {
		case "show":
			_, err = says.Write(memory)
		case "unmap":
			_, _, e := unix.Syscall(unix.SYS_MUNMAP, uintptr(unsafe.Pointer(&memory[size/2])), size/2, 0)
			_, err = fmt.Fprintln(says, e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// A peer is another process.
type peer struct {
	t       *testing.T
	command *exec.Cmd
	tell    io.WriteCloser
	says    *bufio.Reader
	address uint64 // of its memory
}

func newPeer(t *testing.T) *peer {
	t.Helper()
	p := &peer{t: t, command: exec.Command("/proc/self/exe")}
	p.command.Env = append(os.Environ(), other+"=1")
	p.command.Stderr = os.Stderr
	tell, err := p.command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	says, err := p.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	p.tell, p.says = tell, bufio.NewReader(says)
	t.Cleanup(func() {
		p.tell.Close()
		if err := p.command.Wait(); err != nil {
			t.Error(err)
		}
	})
	if _, err := fmt.Fscanln(p.says, &p.address); err != nil {
		t.Fatal(err)
	}
	if err := Read(p.pid(), p.address, make([]byte, 1)); errors.Is(err, syscall.EPERM) {
		t.Skip("this process may not read another's memory: ", err)
	}
	return p
}

func (p *peer) pid() int { return p.command.Process.Pid }

// memory returns the bytes that the process has.
func (p *peer) memory() []byte {
	p.t.Helper()
	fmt.Fprintln(p.tell, "show")
	b := make([]byte, size)
	if _, err := io.ReadFull(p.says, b); err != nil {
		p.t.Fatal(err)
	}
	return b
}

// unmap has its second half be gone.
func (p *peer) unmap() {
	p.t.Helper()
	fmt.Fprintln(p.tell, "unmap")
	if line, err := p.says.ReadString('\n'); err != nil || !strings.Contains(line, "errno 0") {
		p.t.Fatal(line, err)
	}
}

// register registers a part of the process's memory.
func (p *peer) register(s *Space, offset, length uint64) *Memory {
	p.t.Helper()
	m, err := s.Register(p.pid(), p.address+offset, length, false)
	if err != nil {
		p.t.Fatal(err)
	}
	return m
}

// ranges are n bytes of a region at an offset.
func ranges(t *testing.T, dst [][]byte, m *Memory, offset, n uint64) [][]byte {
	t.Helper()
	dst, ok := m.Write(dst, offset, n)
	if !ok {
		t.Fatal("there is no such memory")
	}
	return dst
}

// TestPlace writes to regions of two processes and to memory of this one, in turn.
func TestPlace(t *testing.T) {
	var s Space
	a, b := newPeer(t), newPeer(t)
	first, second, foreign := a.register(&s, 100, 1000), a.register(&s, 5000, 10), b.register(&s, 0, size)
	own := make([]byte, 4)
	to := ranges(t, nil, first, 10, 3)
	to = ranges(t, to, second, 0, 2)
	to = append(to, own)
	to = ranges(t, to, foreign, size-3, 3)
	to = ranges(t, to, first, 999, 1)
	place, placed := s.NewPlacer()
	if data := []byte("onetwFOURlst!"); !place(to, data) || !placed() {
		t.Fatal("not placed")
	}
	wantA, wantB := initial(), initial()
	copy(wantA[110:], "one")
	copy(wantA[5000:], "tw")
	copy(wantB[size-3:], "lst")
	wantA[1099] = '!'
	if got := a.memory(); !bytes.Equal(got, wantA) {
		t.Errorf("the first process differs at %d", differs(got, wantA))
	}
	if got := b.memory(); !bytes.Equal(got, wantB) {
		t.Errorf("the second process differs at %d", differs(got, wantB))
	}
	if string(own) != "FOUR" {
		t.Errorf("this process has %q", own)
	}
	// Less data than there is room for.
	if !place(ranges(t, nil, first, 0, 1000), []byte("short")) || !placed() {
		t.Fatal("not placed")
	}
	copy(wantA[100:], "short")
	if got := a.memory(); !bytes.Equal(got, wantA) {
		t.Errorf("the first process differs at %d", differs(got, wantA))
	}
}

// placeAtOnce places data by a placer that nothing was put off with.
func (s *Space) placeAtOnce(ranges [][]byte, data []byte) (ok bool) {
	place, placed := s.NewPlacer()
	return place(ranges, data) && placed()
}

// TestPutOff: what is put off goes with what is to be there, in order, or when it is much, and what fails is told once.
func TestPutOff(t *testing.T) {
	var s Space
	a, b := newPeer(t), newPeer(t)
	ours, theirs := a.register(&s, 0, size), b.register(&s, 0, size)
	place, placed := s.NewPlacer()
	is := func(p *peer, at int, want string) {
		t.Helper()
		if got := p.memory()[at : at+len(want)]; string(got) != want {
			t.Errorf("%q at %d, not %q", got, at, want)
		}
	}
	for i, data := range []string{"abc", "def", "X"} {
		if !place(ranges(t, nil, ours, uint64(100+2*i), uint64(len(data))), []byte(data)) {
			t.Fatal("not placed")
		}
	}
	is(a, 100, "\x64\x65\x66")
	if !placed() {
		t.Fatal("not placed")
	}
	is(a, 100, "abdeX")
	place(ranges(t, nil, ours, 200, 1), []byte("1"))
	place(ranges(t, nil, theirs, 300, 1), []byte("2"))
	is(a, 200, "1")
	for i := range uint64(mostPlaced) {
		place(ranges(t, nil, theirs, 301+2*i, 1), []byte("3"))
	}
	is(b, 300, "2")
	a.unmap()
	place(ranges(t, nil, ours, size-1, 1), []byte("4"))
	place(ranges(t, nil, theirs, 300, 1), []byte("5"))
	if place(ranges(t, nil, theirs, 300, 1), []byte("6")) {
		t.Error("what failed is not told")
	}
	is(b, 300, "5")
	if !place(ranges(t, nil, theirs, 300, 1), []byte("7")) || !placed() {
		t.Error("what failed is told again")
	}
	is(b, 300, "7")
	if place(ranges(t, nil, ours, size-1, 1), []byte("8")); placed() || !placed() {
		t.Error("what failed is not told once")
	}
}

func initial() []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

func differs(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

// TestFetch makes packets of the memory of two processes and of this one.
func TestFetch(t *testing.T) {
	var s Space
	a, b := newPeer(t), newPeer(t)
	first, second := a.register(&s, 256, 4096), b.register(&s, 512, 4096)
	packets := make([]roce.Packet, 3)
	packets[0].Payload = ranges(t, ranges(t, nil, first, 1, 3), first, 0, 1)
	packets[1].Payload = [][]byte{[]byte("own")}
	packets[2].Payload = ranges(t, ranges(t, nil, second, 4, 2), first, 4095, 1)
	done, there, lost := s.Fetch(packets)
	if there != len(packets) || lost {
		t.Fatalf("%d packets fetched, lost: %t", there, lost)
	}
	defer done()
	for i, want := range []string{"\x01\x02\x03\x00", "own", "\x04\x05\xff"} {
		if got := string(bytes.Join(packets[i].Payload, nil)); got != want {
			t.Errorf("packet %d has %q, not %q", i, got, want)
		}
	}
}

// TestGone has memory go that is registered: what is there can be used, what is not is an error, and then the region is.
func TestGone(t *testing.T) {
	var s Space
	p := newPeer(t)
	m, other := p.register(&s, 0, size), p.register(&s, 0, 100)
	p.unmap()
	if _, err := s.Register(p.pid(), p.address+size/2-1, 2, false); err != syscall.EFAULT {
		t.Errorf("registered: %v", err)
	}
	if s.placeAtOnce(ranges(t, nil, m, size/2-1, 2), []byte("xy")) {
		t.Error("placed where there is nothing")
	}
	if !s.placeAtOnce(ranges(t, nil, m, 0, 2), []byte("xy")) {
		t.Error("not placed where there is something")
	}
	for _, c := range []struct {
		offset, length uint64
		want           bool
	}{{0, 1, true}, {0, size / 2, true}, {size/2 - 1, 2, false}, {size / 2, 0, true}, {size - 1, 1, false}, {1, size - 1, false}} {
		if got := m.Readable(c.offset, c.length); got != c.want {
			t.Errorf("readable, %d bytes at %d: %t", c.length, c.offset, got)
		}
	}
	if _, ok := m.Atomic(rc.OpFetchAdd, size/2, 1, 0); ok {
		t.Error("added to nothing")
	}
	packets := []roce.Packet{
		{Payload: ranges(t, nil, other, 0, 1)}, {Payload: ranges(t, ranges(t, nil, other, 0, 1), m, size-1, 1)}, {Payload: ranges(t, nil, m, size-1, 1)},
	}
	done, there, lost := s.Fetch(packets)
	done()
	if there != 1 || lost {
		t.Errorf("%d packets fetched, not the one whose memory is there", there)
	}
	if _, ok := m.Read(nil, 0, 1); ok {
		t.Error("the region is as before")
	}
	if _, ok := other.Read(nil, 0, 1); !ok {
		t.Error("another region is gone")
	}
}

// TestEnded: who needs memory of a process that has ended is told, however it is needed; but not for memory that is gone alone.
// A request that needs it is refused, unless all have ended: then nothing fails, and nothing is sent.
func TestEnded(t *testing.T) {
	var s Space
	var ended []int
	var all bool
	s.Ended = func(pid int) bool {
		ended = append(ended, pid)
		return all
	}
	p := newPeer(t)
	m := p.register(&s, 0, size)
	p.unmap()
	s.placeAtOnce(ranges(t, nil, m, size-1, 1), []byte("x"))
	if len(ended) > 0 {
		t.Error("ended before it has")
	}
	p.tell.Close()
	if _, err := p.says.ReadByte(); err != io.EOF { // files are closed when the memory is gone
		t.Fatal(err)
	}
	needs := map[string]func() (ok bool){
		"placed": func() bool { return s.placeAtOnce(ranges(t, nil, m, 0, 1), []byte("x")) },
		"fetched": func() bool {
			done, there, lost := s.Fetch([]roce.Packet{{Payload: ranges(t, nil, m, 0, 1)}})
			done()
			if lost != all {
				t.Errorf("lost: %t, though that all have ended is %t", lost, all)
			}
			return !m.gone.Swap(false) && there == 1
		},
		"atomic": func() bool {
			_, ok := m.Atomic(rc.OpFetchAdd, 0, 1, 0)
			return ok
		},
	}
	for _, all = range []bool{false, true} {
		for name, need := range needs {
			ended = nil
			if ok := need(); ok != all || len(ended) == 0 || ended[0] != p.pid() {
				t.Errorf("%s: done: %t, told of %v, though that all have ended is %t", name, ok, ended, all)
			}
		}
	}
	done, _, lost := s.Fetch([]roce.Packet{{}}) // an acknowledgement
	if done(); !lost {
		t.Error("what has no payload is sent")
	}
}

// TestAtomic does all three on a process's memory.
func TestAtomic(t *testing.T) {
	var s Space
	p := newPeer(t)
	m := p.register(&s, 8, 64)
	before := uint64(0x0f0e0d0c0b0a0908)
	for _, c := range []struct {
		op               rc.Op
		operand, compare uint64
		after            uint64
	}{
		{rc.OpFetchAdd, 5, 0, before + 5},
		{rc.OpCompareSwap, 7, 1, before + 5},
		{rc.OpCompareSwap, 7, before + 5, 7},
		{rc.OpAtomicWrite, 9, 0, 9},
		{rc.OpFetchAdd, 0, 0, 9},
	} {
		if got, ok := m.Atomic(c.op, 0, c.operand, c.compare); !ok || got != before {
			t.Errorf("%+v: %#x was there, not %#x", c, got, before)
		}
		before = c.after
	}
}

// TestFailedCompareWritesNothing, which could undo what the program writes just then. An addition of nothing does write: by that it is
// found out whether memory can be written.
func TestFailedCompareWritesNothing(t *testing.T) {
	var s Space
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(page)
	m, err := s.Register(os.Getpid(), uint64(uintptr(unsafe.Pointer(&page[0]))), uint64(len(page)), false)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mprotect(page, unix.PROT_READ); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		op               rc.Op
		operand, compare uint64
		fits             bool
	}{{rc.OpCompareSwap, 7, 1, true}, {rc.OpCompareSwap, 7, 0, false}, {rc.OpFetchAdd, 0, 0, false}} {
		if _, ok := m.Atomic(c.op, 0, c.operand, c.compare); ok != c.fits {
			t.Errorf("%+v on a page that cannot be written: %v", c, ok)
		}
	}
}

// TestClose has a region's place be free, and another region be found where it was.
func TestClose(t *testing.T) {
	var s Space
	p := newPeer(t)
	m := p.register(&s, 0, 4096)
	if err := m.Close(); err != nil || len(s.regions) != 0 {
		t.Fatal(err, s.regions)
	}
	empty := p.register(&s, 0, 0)
	if b, ok := empty.Read(nil, 0, 0); !ok || len(b) != 0 {
		t.Error("an empty region has something")
	}
	if err := empty.Close(); err != nil {
		t.Error(err)
	}
	for range 3 {
		m := p.register(&s, 0, size)
		if !s.placeAtOnce(ranges(t, nil, m, 0, 1), []byte{1}) {
			t.Error("not placed")
		}
		defer m.Close()
	}
	if _, err := s.Register(p.pid(), 8, 8, false); err != syscall.EFAULT {
		t.Errorf("what is not there: %v", err)
	}
	if _, err := s.Register(p.pid(), p.address, 1<<60, false); err != syscall.EINVAL {
		t.Errorf("more than there can be: %v", err)
	}
	if _, err := s.Register(p.pid(), 0, math.MaxUint64, true); err != syscall.EOPNOTSUPP {
		t.Errorf("all that there can be: %v", err)
	}
	later, err := s.Register(p.pid(), 8, 8, true)
	if err != nil {
		t.Fatal(err)
	}
	if s.placeAtOnce(ranges(t, nil, later, 0, 1), []byte{1}) {
		t.Error("placed where there is nothing yet")
	}
}
