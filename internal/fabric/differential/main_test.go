package differential

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/ndklab/ndklab/internal/built"
	"github.com/ndklab/ndklab/internal/need"
)

var (
	trials = flag.Int("trials", 4, "how many trials")
	seed   = flag.Uint64("seed", 1, "the number of the first trial; the others follow")
)

// scratch is a directory for files of trials; ndklab is the program.
var scratch, ndklab string

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	if !need.Long() { // every test is skipped
		return m.Run(), nil
	}
	if scratch, err = os.MkdirTemp("", "differential-"); err != nil {
		return 0, err
	}
	defer os.RemoveAll(scratch)
	ndklab = filepath.Join(scratch, "ndklab")
	if err := built.Build(ndklab, "github.com/ndklab/ndklab/cmd/ndklab"); err != nil {
		return 0, err
	}
	return m.Run(), nil
}
