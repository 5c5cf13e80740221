package node

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// superPacketsCross reports whether packet sockets, by which the link engine and
// captures see an interface, can pass UDP super-packets. Before Linux 6.2 the
// header that tells of them had no word for UDP (VIRTIO_NET_HDR_GSO_UDP_L4), and
// the kernel dropped them at the socket. There the interfaces of nodes have the
// kernel split what an adapter sends, as it leaves: slower, but it arrives.
func superPacketsCross() bool {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return false
	}
	return atLeast(unix.ByteSliceToString(u.Release[:]), 6, 2)
}

// atLeast reports whether a kernel release, such as 6.1.0-56-amd64, is of that
// version or a later one; not if it cannot be read.
func atLeast(release string, major, minor int) bool {
	var x, y int
	if n, err := fmt.Sscanf(release, "%d.%d", &x, &y); n != 2 || err != nil {
		return false
	}
	return x > major || x == major && y >= minor
}
