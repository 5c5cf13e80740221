package node

import (
	"io"
	"strings"
	"testing"
)

// The processes of a node see each other and nobody else, cannot end the agent, and
// end with it, also those that have left every group.
func TestProcessesOfNode(t *testing.T) {
	a, _ := started(t, Config{Lab: "l", Name: "n"})
	out, result := running(t, t.Context(), a, "", "kill -9 1; setsid sh -c 'trap \"\" TERM HUP; echo ready; kill -STOP $$' & exec true")
	if status := <-result; status != 0 {
		t.Fatalf("status %d", status)
	}
	_, seen, text := run(t, a, sh("cd /proc; for p in [0-9]*; do cat $p/comm; done"), "")
	if want := "ndklab-node sh sh"; strings.Join(strings.Fields(seen), " ") != want {
		t.Errorf("processes %q, want %q; %s", seen, want, text)
	}
	a.Kill()
	awaitDone(t, a)
	// The daemon had the pipe open.
	if rest, err := io.ReadAll(out); len(rest) > 0 || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
}
