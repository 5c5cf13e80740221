package chaos

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/ndklab/ndklab/internal/need"
)

// Nothing of a lab is left, nothing else is touched, and it comes up again, whatever
// happens to it, and whenever.
func TestChaos(t *testing.T) {
	need.Time(t)
	chosen := chosenFaults(t)
	first, end := 0, *trials
	if end == 0 {
		end = len(chosen)
	}
	if *alone >= 0 {
		first, end = *alone, *alone+1
	}
	done := tally{}
	for n := first; n < end; n++ {
		kind, user, ok := "", "", true
		for earlier, struck := 1, false; ok && !struck; earlier *= 2 {
			trial := draw(*seed, n, chosen)
			trial.after /= time.Duration(earlier) // if there was nothing to strike any more
			kind, user = trial.fault.name, trial.user.name
			ok = t.Run(fmt.Sprintf("%d/%s", n, trial.name()), func(t *testing.T) {
				trial.prepare(t, n)
				struck = trial.do()
			})
			if trial.after == 0 {
				break
			}
		}
		done.add(kind, user, ok)
		if !ok {
			t.Logf("trial %d of seed %d: make test-chaos SEED=%d TRIAL=%d ONLY='%s' DURING='%s'", n, *seed, *seed, n, *only, *during)
		}
	}
	t.Logf("seed %d\n%s", *seed, done)
}

// chosenMoments selects moments by their names (-during).
var chosenMoments *regexp.Regexp

// chosenFaults are those that match -only, and that we may do.
func chosenFaults(t *testing.T) []fault {
	pattern, err := regexp.Compile(*only)
	if err != nil {
		t.Fatal(err)
	}
	if chosenMoments, err = regexp.Compile(*during); err != nil {
		t.Fatal(err)
	}
	var chosen []fault
	for _, f := range faults {
		if pattern.MatchString(f.name) && len(f.moments()) > 0 && (!f.root || os.Geteuid() == 0) {
			chosen = append(chosen, f)
		}
	}
	if len(chosen) == 0 {
		t.Fatalf("no fault matches %q at a moment that matches %q", *only, *during)
	}
	return chosen
}

// A tally counts trials.
type tally []count

type count struct {
	kind, user   string
	trials, left int
}

func (t *tally) add(kind, user string, ok bool) {
	i := slices.IndexFunc(*t, func(c count) bool { return c.kind == kind && c.user == user })
	if i < 0 {
		i = len(*t)
		*t = append(*t, count{kind: kind, user: user})
	}
	(*t)[i].trials++
	if !ok {
		(*t)[i].left++
	}
}

func (t tally) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "fault\tuser\ttrials\twith leftovers")
	sum := count{kind: "all"}
	for _, c := range t {
		sum.trials, sum.left = sum.trials+c.trials, sum.left+c.left
	}
	for _, c := range append(t, sum) {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\n", c.kind, c.user, c.trials, c.left)
	}
	w.Flush() // to memory
	return b.String()
}
