package linkem

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// The packages that carry packets link nothing that packets do not need: not the NDKPI
// provider, of which they know the packets' layout and the clock alone, no node, and no report.
func TestImports(t *testing.T) {
	const module = "github.com/ndklab/ndklab/"
	layout := []string{"internal/provider/roce", "internal/provider/roce/mad", "provider/clock"}
	for _, of := range []string{"internal/fabric/linkem", "internal/fabric/linkstats", "internal/fabric/impair", "internal/fabric/frame"} {
		out, err := exec.Command("go", "list", "-deps", module+of).Output()
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(strings.Fields(string(out)), module+of) {
			t.Fatalf("go list -deps does not list %s itself:\n%s", of, out)
		}
		for dep := range strings.FieldsSeq(string(out)) {
			dep, ours := strings.CutPrefix(dep, module)
			if !ours || slices.Contains(layout, dep) {
				continue
			}
			for _, banned := range []string{"provider", "node", "internal/fabric/report", "internal/fabric/linkreport", "internal/fabric/event"} {
				if dep == banned || strings.HasPrefix(dep, banned+"/") {
					t.Errorf("%s imports %s", of, dep)
				}
			}
		}
	}
}
