package confine

import "golang.org/x/sys/unix"

const (
	architecture = unix.AUDIT_ARCH_AARCH64
	// foreignNumbers are none that the kernel has.
	foreignNumbers = 0x40000000
)

// legacy are calls of this architecture alone.
var legacy = []uint32{unix.SYS_KEXEC_FILE_LOAD}
