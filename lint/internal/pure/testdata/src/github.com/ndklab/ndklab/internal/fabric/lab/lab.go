// Package lab is no pure package: wall-clock time is allowed.
package lab

import "time"

var started = time.Now()
