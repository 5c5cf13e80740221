package lab

import "time"

var started = time.Now()
