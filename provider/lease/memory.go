package lease

import (
	"fmt"
	"net/netip"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/provider/sharing"
)

// newMemory makes memory for a ledger. Nobody can change its size, so that
// nobody who has mapped it is killed by touching it.
func newMemory(addresses int) (*os.File, error) {
	fd, err := unix.MemfdCreate("ndklab-ledger", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "ledger")
	if err := f.Truncate(int64(sharing.Size(addresses))); err != nil {
		f.Close()
		return nil, err
	}
	const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		f.Close()
		return nil, os.NewSyscallError("fcntl F_ADD_SEALS", err)
	}
	return f, nil
}

// openLedger maps the ledger in f, for as long as it is in use.
func openLedger(f *os.File, addresses []netip.Addr, own int) (*sharing.Ledger, error) {
	size := sharing.Size(len(addresses))
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	if info.Size() < int64(size) {
		return nil, fmt.Errorf("ledger: it has %d bytes, and %d addresses take %d", info.Size(), len(addresses), size)
	}
	memory, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("ledger: mmap", err)
	}
	ledger, err := sharing.New(memory, addresses, own)
	if err != nil {
		unmap(memory)
		return nil, err
	}
	runtime.AddCleanup(ledger, unmap, memory)
	return ledger, nil
}

func unmap(memory []byte) {
	// It can only fail for memory that is not mapped.
	_ = unix.Munmap(memory)
}
