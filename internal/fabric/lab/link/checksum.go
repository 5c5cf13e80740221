package link

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// CompleteChecksums has the kernel fill in every checksum before a packet leaves
// an interface. Between a lab's namespaces they may stay open, because no wire
// is there to damage anything; whoever reads frames with a packet socket or
// sends them on by other means needs them.
func CompleteChecksums(iface string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	command := struct{ command, value uint32 }{unix.ETHTOOL_STXCSUM, 0} // struct ethtool_value
	request := struct {                                                 // struct ifreq
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(&command)}
	copy(request.name[:len(request.name)-1], iface)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return fmt.Errorf("turn checksum offload off: %w", errno)
	}
	return nil
}
