package await_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestLibraryGuide: the programs of docs/library.md compile.
func TestLibraryGuide(t *testing.T) {
	text, err := os.ReadFile("../../docs/library.md")
	must(t, err)
	var blocks []string
	for rest := string(text); ; {
		var found bool
		if _, rest, found = strings.Cut(rest, "```go\n"); !found {
			break
		}
		var block string
		block, rest, _ = strings.Cut(rest, "```\n")
		blocks = append(blocks, block)
	}
	if len(blocks) != 2 {
		t.Fatalf("%d programs, want a server and its client", len(blocks))
	}
	// The client is the server's program, but for the function.
	server, client := blocks[0], blocks[1]
	head, _, _ := strings.Cut(server, "\nfunc serve")
	client = strings.NewReplacer("serve(", "call(", `	"fmt"`+"\n", "").Replace(head) + "\n" + client
	for name, program := range map[string]string{"server": server, "client": client} {
		file := filepath.Join(t.TempDir(), name+".go")
		must(t, os.WriteFile(file, []byte(program), 0o600))
		if out, err := exec.CommandContext(t.Context(), "go", "vet", file).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}
