// Package workload is on the clock of the lab: goroutines and locks are allowed,
// wall-clock time is not.
package workload

import (
	"sync"
	"time"
)

var mu sync.Mutex

var started = time.Now // want "time.Now is wall-clock time"

func fine(c chan int) { go fine(c) }
