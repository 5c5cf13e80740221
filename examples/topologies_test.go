package examples_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/ndklab/ndklab/fabric/doctor"
)

// TestFabrics runs the examples that have switches, routers and impairments, as whoever runs the
// test and as an ordinary user. How fast they are is for the machine to say, and
// whether it keeps up with the links, too.
func TestFabrics(t *testing.T) {
	if !doctor.Examine(t.Context()).CanRun {
		t.Skip("labs cannot run here: `ndklab doctor` says why")
	}
	for _, user := range accounts(t) {
		for example, checks := range map[string]int{"star": 6, "leaf-spine": 7, "impaired": 4} {
			t.Run(user.name+" "+example, func(t *testing.T) {
				t.Parallel()
				data, err := os.ReadFile(example + ".ndklab.yaml")
				if err != nil {
					t.Fatal(err)
				}
				name := example + "-" + strconv.Itoa(os.Getpid())
				text := strings.NewReplacer("\nname: "+example+"\n", "\nname: "+name+"\n", "\n      mtu: 4200 ", "\n      overrun: allow\n      mtu: 4200 ").Replace(string(data))
				if !strings.Contains(text, name) || !strings.Contains(text, "overrun: allow") {
					t.Fatalf("the example is not as this test expects:\n%s", text)
				}
				file := filepath.Join(bin, name+"-"+user.name+".yaml")
				if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
				p := user.start(t, "ndklab", "run", file)
				if code := p.end(); code != 0 {
					t.Fatalf("exit code %d\n%s%s", code, &p.printed, &p.errors)
				}
				if got := len(regexp.MustCompile(`(?m)  ok$`).FindAllString(p.printed.String(), -1)); got != checks {
					t.Errorf("%d checks passed, want %d\n%s", got, checks, &p.printed)
				}
			})
		}
	}
}

// TestSuite plays the suite in virtual time; what links of this machine make of it is for
// the machine to say.
func TestSuite(t *testing.T) {
	folder, err := filepath.Abs("suite")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.ndklab.yaml"))
	if err != nil || len(files) < 12 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	readme, err := os.ReadFile("suite/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if name := filepath.Base(file); !strings.Contains(string(readme), "("+name+")") {
			t.Errorf("suite/README.md does not tell of %s", name)
		}
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "ndklab"), "run", folder, "--simulate", "--artifacts", t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
