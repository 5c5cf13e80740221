package verbs

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/node/verbs/sysclass"
)

// BenchmarkMount is the mounts of one node, in a namespace that has nothing but the
// machine's.
func BenchmarkMount(b *testing.B) {
	libraries := b.TempDir()
	if err := os.WriteFile(filepath.Join(libraries, Ibverbs), nil, 0o755); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		done := make(chan error)
		go func() {
			runtime.LockOSThread() // it ends with the goroutine, and the namespace with it
			b.StopTimer()
			err := unix.Unshare(unix.CLONE_NEWNS)
			if err == nil {
				err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
			}
			b.StartTimer()
			if err == nil {
				_, err = Mount(libraries, "", &sysclass.Device{Name: DeviceName})
			}
			done <- err
		}()
		if err := <-done; err != nil {
			b.Skip(err)
		}
	}
}
