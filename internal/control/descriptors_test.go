package control

import (
	"bytes"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// TestNoRoomForFiles: where this process may open no more files, a request that brings some fails, and the channel lives on.
func TestNoRoomForFiles(t *testing.T) {
	_, raw := rawPair(t, double)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	answer := make([]byte, 1000)
	ask := func(fds ...int) []byte {
		t.Helper()
		if _, _, err := raw.WriteMsgUnix(onWire(`{"id":1,"method":"double","params":21}`), unix.UnixRights(fds...), nil); err != nil {
			t.Fatal(err)
		}
		n, err := raw.Read(answer)
		if err != nil {
			t.Fatalf("the channel has ended: %v", err)
		}
		return answer[:n]
	}

	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	most := 0
	for _, e := range all {
		if fd, err := strconv.Atoi(e.Name()); err == nil {
			most = max(most, fd)
		}
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(most + 1), Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	var filled []int
	for {
		fd, err := unix.Dup(int(r.Fd()))
		if err != nil {
			break
		}
		filled = append(filled, fd)
	}
	got := bytes.Clone(ask(int(w.Fd()), int(w.Fd())))
	for _, fd := range filled {
		unix.Close(fd)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(got, []byte("the files of double do not arrive")) {
		t.Errorf("answered %q", got)
	}
	if got := ask(int(w.Fd())); bytes.Contains(got, []byte("error")) || !bytes.Contains(got, []byte("42")) {
		t.Errorf("then answered %q", got)
	}
}
