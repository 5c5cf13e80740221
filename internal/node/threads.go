package node

import (
	"runtime"
	"sync"
)

// spareThreads are more than an agent has ever been seen to need.
const spareThreads = 16

// makeThreads has the runtime make n threads, which it keeps and takes before it makes
// another. In a node whose commands have used up its processes and threads, the kernel
// makes none any more, which the runtime does not survive.
func makeThreads(n int) {
	var made, over sync.WaitGroup
	release := make(chan struct{})
	made.Add(n)
	for range n {
		over.Go(func() {
			runtime.LockOSThread() // while it is, nobody else runs on this thread
			defer runtime.UnlockOSThread()
			made.Done()
			<-release
		})
	}
	made.Wait()
	close(release)
	over.Wait()
}
