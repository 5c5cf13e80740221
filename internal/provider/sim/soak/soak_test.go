package soak_test

import (
	"testing"

	"github.com/ndklab/ndklab/internal/provider/sim/soak"
	"github.com/ndklab/ndklab/internal/provider/sim/trial/trialtest"
)

func TestSeeds(t *testing.T) { trialtest.Seeds(t, "./internal/provider/sim/soak", 400, soak.Run) }

func TestRepeatable(t *testing.T) { trialtest.Repeatable(t, soak.Run) }
