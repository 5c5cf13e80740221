package verbsoak_test

import (
	"testing"

	"github.com/ndklab/ndklab/internal/provider/sim/trial/trialtest"
	"github.com/ndklab/ndklab/internal/provider/sim/verbsoak"
)

func TestSeeds(t *testing.T) {
	trialtest.Seeds(t, "./internal/provider/sim/verbsoak", 150, verbsoak.Run)
}

func TestRepeatable(t *testing.T) { trialtest.Repeatable(t, verbsoak.Run) }
