package clock

import "time"

// Within reports whether a channel is closed, or has something, within a limit of real
// time. A process that gets no processor meanwhile has nearly all of the limit left: it waits
// in parts, of which only one is over then.
func Within[T any](limit time.Duration, c <-chan T) bool {
	const parts = 10
	for range parts {
		select {
		case <-c:
			return true
		case <-time.After(limit / parts):
		}
	}
	select { // both may have come at once
	case <-c:
		return true
	default:
		return false
	}
}
