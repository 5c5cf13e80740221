// Package differential holds the test that a simulation foretells a lab: random topologies
// run in both, with the same results within the bounds that docs/topology.md states under
// Simulation.
//
// A trial (trial_test.go) is a topology that a number draws: two to four hosts, on one link
// or around a switch, with random rates, delays, loss and queues, and one or two workloads.
// The program runs it with --simulate and as a lab, and bounds_test.go compares the reports.
// Start reading at TestSimulationForetellsLab:
//
//	make differential TRIALS=25 SEED=1
//	make differential TRIALS=1 SEED=7       trial 7 alone
//
// A machine that is busy makes a lab slower, never faster. So what a lab does worse than its
// simulation counts only if three runs of the lab do it; what it does better counts at once.
package differential
