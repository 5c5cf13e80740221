// Package rc is a pure package, and does all that those must not.
package rc

import (
	"math/rand/v2"
	"sync" // want "a pure package has no use for sync"
	"time"
)

var mu sync.Mutex

func bad(c chan int) time.Time { // want "a pure package uses no channel"
	go bad(c)         // want "a pure package starts no goroutine"
	_ = rand.IntN(3)  // want "rand.IntN draws on the global source"
	time.Sleep(1)     // want "time.Sleep is wall-clock time"
	return time.Now() // want "time.Now is wall-clock time"
}

func good(r *rand.Rand, now time.Duration) time.Duration {
	return now + time.Duration(r.IntN(3))*time.Millisecond + time.Duration(rand.New(rand.NewPCG(1, 2)).Int64())
}
