package programs

import (
	"context"
	_ "embed" // of the program
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/ndklab/ndklab/internal/need"
)

// glooSource is a program over Gloo, which is a library.
//
//go:embed testdata/gloo.cc
var glooSource []byte

// TestGloo has four nodes sum up by Gloo. They find each other by files.
func TestGloo(t *testing.T) {
	fit(t)
	need.Check(t, need.Programs("g++"))
	if _, err := os.Stat("/usr/include/gloo/transport/ibverbs/device.h"); err != nil {
		need.Check(t, fmt.Errorf("the package libgloo-dev: %w", err))
	}
	folder := t.TempDir()
	program, store := filepath.Join(folder, "gloo"), filepath.Join(folder, "store")
	if err := errors.Join(os.Mkdir(store, 0o755), os.WriteFile(program+".cc", glooSource, 0o644)); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("g++", "-O2", "-o", program, program+".cc", "-lgloo", "-libverbs").CombinedOutput(); err != nil {
		t.Fatalf("g++: %v\n%s", err, out)
	}
	l, nodes := starLab(t, 4)
	ctx, cancel := context.WithTimeoutCause(l.Context(), pairTime, errors.New("it takes too long"))
	defer cancel()
	before := sentBy(l, nodes)
	var ranks []*end
	for i, node := range nodes {
		ranks = append(ranks, start(ctx, t, l, node, fmt.Sprintf("%s %d %d %s", program, i, len(nodes), store)))
	}
	for i, rank := range ranks {
		err := rank.wait()
		if err = errors.Join(err, prints(rank.node, rank.output.String(), fmt.Sprintf(`^rank %d of %d: 0 wrong$`, i, len(nodes)))); err != nil {
			t.Errorf("%v\n%s", err, rank.output.String())
		}
	}
	// Around the ring go vectors of a million and more, in two ways.
	for i, sent := range sentBy(l, nodes) {
		if least := uint64(2 * 4 * 1000000); sent-before[i] < least {
			t.Errorf("%s has sent %d bytes by RDMA, want at least %d", nodes[i], sent-before[i], least)
		}
	}
}
