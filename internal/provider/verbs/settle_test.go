package verbs

import "testing"

// The first packet of the peer may be under way to a queue pair that has just been destroyed: nobody is told of it then.
func TestRequestedOfDestroyed(t *testing.T) {
	told := func(destroyed bool) (told bool) {
		defer func() { told = recover() != nil }() // a queue pair without a context has nobody to tell
		model{&QP{state: ReadyToReceive, destroyed: destroyed}}.Requested()
		return false
	}
	if told(true) || !told(false) {
		t.Errorf("told of one that is destroyed: %v, of another: %v", told(true), told(false))
	}
}
