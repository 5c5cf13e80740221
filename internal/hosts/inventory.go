package hosts

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// cpus returns the number of processors that this process may run on.
func cpus() float64 {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return 1
	}
	return float64(allowed.Count())
}

// build returns what Go calls the build ID of this program, which depends on all of its content; "" if it has none.
func build() string {
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		return ""
	}
	defer f.Close()
	head := make([]byte, 8<<10)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) { // a program may be shorter
		return ""
	}
	return buildIn(head[:n])
}

// buildIn finds the build ID in the beginning of a program, where the linker puts it as a note (elf(5)): the lengths of
// name and description, the type 4, the name "Go", and the description.
func buildIn(head []byte) string {
	at := bytes.Index(head, []byte("\x04\x00\x00\x00Go\x00\x00"))
	if at < 4 {
		return ""
	}
	length := int(binary.LittleEndian.Uint32(head[at-4:]))
	begin := at + 8
	if length > len(head)-begin {
		return ""
	}
	return string(head[begin : begin+length])
}
