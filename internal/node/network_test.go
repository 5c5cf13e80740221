package node

import "testing"

func TestAtLeast(t *testing.T) {
	for release, want := range map[string]bool{
		"6.2":                   true,
		"6.2.0-39-generic":      true,
		"6.18.44":               true,
		"10.0.1":                true,
		"6.1.0-56-amd64":        false,
		"5.15.0-1053-azure":     false,
		"5.4":                   false,
		"":                      false,
		"unreadable":            false,
		"5.14.0-427.el9.x86_64": false,
		"6.2-rc1":               true,
	} {
		if got := atLeast(release, 6, 2); got != want {
			t.Errorf("%q: got %v", release, got)
		}
	}
}
