package capture

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/gopacket/gopacket/pcapgo"
	"golang.org/x/sys/unix"
)

// readFile is the packets of a file, which has to end with a whole block.
func readFile(t *testing.T, path string) [][]byte {
	t.Helper()
	file, err := os.ReadFile(path)
	must(t, err)
	packets, _ := readBack(t, file)
	return packets
}

// sendAndRecord records what super-packets leave near, to files. The sends all
// precede the recording, which ends with them.
func sendAndRecord(t *testing.T, files *Files, supers int, options Options) ([]Counts, error) {
	t.Helper()
	socket, err := Open("near")
	must(t, err)
	for range supers {
		sendSuper(t)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return Run(ctx, []Source{{Name: "near", Socket: socket}}, files, options)
}

const perSuper = (payload + segment - 1) / segment // packets

func TestRing(t *testing.T) {
	wire(t)
	dir := t.TempDir()
	const size, keep, supers = 20 << 10, 3, 20
	files, err := Ring(filepath.Join(dir, "ring.pcapng"), size, keep)
	must(t, err)
	counts, err := sendAndRecord(t, files, supers, Options{})
	must(t, err)
	if counts[0] != (Counts{Packets: supers * perSuper}) {
		t.Errorf("counts %+v", counts[0])
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	must(t, err)
	if len(left) != keep {
		t.Fatalf("%d files, want %d: %v", len(left), keep, left)
	}
	var last []byte
	for i, path := range left {
		info, err := os.Stat(path)
		must(t, err)
		if full := info.Size() >= size && info.Size() < size+2*segment; i < keep-1 && !full {
			t.Errorf("%s has %d bytes, want about %d", path, info.Size(), size)
		}
		for _, last = range readFile(t, path) {
		}
	}
	// The last super-packet's last packet is in the last file.
	want := wanted(make([]byte, payload))
	if len(last) != len(want[len(want)-1]) {
		t.Errorf("the last packet has %d bytes", len(last))
	}
	if filepath.Base(left[0]) == "ring_00001.pcapng" {
		t.Error("the oldest file is still there")
	}
}

// A disk that is full ends the capture with an error; the file ends with a whole
// packet.
func TestFullDisk(t *testing.T) {
	wire(t)
	dir := t.TempDir()
	must(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	must(t, unix.Mount("small", dir, "tmpfs", 0, "size=64k"))
	t.Cleanup(func() { must(t, unix.Unmount(dir, 0)) })
	path := filepath.Join(dir, "full.pcapng")
	files, err := Ring(path, 32<<10, 10)
	must(t, err)
	if _, err := sendAndRecord(t, files, 50, Options{}); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("error %v, want that the disk is full", err)
	}
	if n := len(readFile(t, files.name("00001"))); n < 20 {
		t.Errorf("%d packets in the first file", n)
	}
	must(t, os.Remove(files.name("00001")))
	readFile(t, files.name("00002")) // not cut off within a block
}

func TestCount(t *testing.T) {
	wire(t)
	path := filepath.Join(t.TempDir(), "few.pcapng")
	files, err := File(path)
	must(t, err)
	counts, err := sendAndRecord(t, files, 10, Options{Count: 7})
	must(t, err)
	if n := len(readFile(t, path)); n != 7 || counts[0].Packets != 7 {
		t.Errorf("%d packets in the file, %d counted, want 7", n, counts[0].Packets)
	}
}

// The counts are in the file, too.
func TestStatistics(t *testing.T) {
	wire(t)
	var file bytes.Buffer
	_, err := sendAndRecord(t, Stream(&file), 1, Options{})
	must(t, err)
	r, err := pcapgo.NewNgReader(&file, pcapgo.DefaultNgReaderOptions)
	must(t, err)
	for err == nil {
		_, _, err = r.ReadPacketData()
	}
	iface, err := r.Interface(0)
	must(t, err)
	if iface.Name != "near" || iface.Statistics.PacketsReceived != perSuper || iface.Statistics.PacketsDropped != 0 ||
		iface.Statistics.EndTime.Before(iface.Statistics.StartTime) || iface.Statistics.StartTime.IsZero() {
		t.Errorf("interface %+v", iface)
	}
}

func TestUnwritable(t *testing.T) {
	if _, err := File(filepath.Join(t.TempDir(), "no", "file")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
	if _, err := Ring(filepath.Join(t.TempDir(), "no", "file"), 1, 1); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}
