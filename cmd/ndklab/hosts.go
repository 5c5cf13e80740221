package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/ndklab/ndklab/internal/hosts"
	"github.com/ndklab/ndklab/internal/topology/parts"
	"github.com/ndklab/ndklab/topology"
	"github.com/spf13/cobra"
)

// hostsHelp describes --hosts in the help of the commands that have it.
const hostsHelp = `--hosts lays the lab over several hosts: local:N (N workers on this machine), slurm (all
hosts of the allocation), 'slurm:FLAGS' (hosts of an allocation that is made for the lab,
by srun's flags), kubernetes (the pods of the Job that "ndklab generate kubernetes" has
written), names of hosts that ssh takes, with commas, or @FILE with a name a line.
` + "`host:` and `together:`" + ` in the file say where nodes are to be. --network 10.1.0.0/16
has hosts reach this machine, and each other, by that network.`

// stepHelp describes --hosts step in the help of run.
const stepHelp = `With --hosts step the command is started on all hosts: srun -N 8 --mpi=pmi2 ndklab run
FILE --hosts step. Task 0 prints the report, and the step's exit code is the run's.`

// sayAlone tells the first of several tasks of a Slurm step that each makes a lab of its own. Somebody may want that, so that it is no error.
func sayAlone(w io.Writer) {
	if rank, tasks, is := hosts.InStep(); is && rank == 0 {
		fmt.Fprintf(w, "this is one of %d tasks of a Slurm step, and each makes a lab of its own: for one over all hosts, srun --mpi=pmi2 ndklab run FILE --hosts step, or run ndklab once in the allocation, with --hosts slurm\n", tasks)
	}
}

// sayMortal tells that a lab which is to stay up ends with the Slurm step that it is made in, if it is.
func sayMortal(w io.Writer) {
	step, err := strconv.ParseUint(os.Getenv("SLURM_STEP_ID"), 10, 32)
	if err != nil || step >= firstSpecialStep {
		return
	}
	if rank, _, is := hosts.InStep(); !is || rank == 0 {
		fmt.Fprintf(w, "this is step %s.%d of Slurm, and the lab ends with it: for one that stays, run ndklab up in the shell of salloc, or in a script of sbatch\n", os.Getenv("SLURM_JOB_ID"), step)
	}
}

// firstSpecialStep and later ones are steps that Slurm makes itself, such as the shell of salloc (SLURM_MAX_NORMAL_STEP_ID of its slurm.h).
const firstSpecialStep = 0xfffffff0

// A hostsFlag is the flag --hosts. It is a pflag.Value.
type hostsFlag struct {
	spec    hosts.Spec
	network networkFlag
}

// add adds --hosts and --network.
func (f *hostsFlag) add(cmd *cobra.Command, what string) {
	cmd.Flags().Var(f, "hosts", what)
	cmd.Flags().Var(&f.network, "network", "reach hosts by this network, such as 10.1.0.0/16")
}

// check says what is wrong with the two together.
func (f *hostsFlag) check() error {
	switch {
	case f.network != "" && !f.given():
		return misuse("--network is for several hosts, expected --hosts, too")
	case f.network != "" && f.spec.Kind == hosts.Local:
		return misuse("--network %s: the workers of --hosts %s are all on this machine, expected other hosts", f.network, f.spec)
	}
	return nil
}

// A networkFlag is the flag --network. It is a pflag.Value.
type networkFlag string

// Set implements pflag.Value.
func (f *networkFlag) Set(text string) error {
	if text == "" {
		return errors.New("no network, expected one such as 10.1.0.0/16")
	}
	network, err := hosts.ParseNetwork(text)
	if err == nil {
		*f = networkFlag(network.String())
	}
	return err
}

// Type implements pflag.Value: what --help calls the value.
func (f *networkFlag) Type() string { return "CIDR" }

// String implements pflag.Value.
func (f *networkFlag) String() string { return string(*f) }

// Set implements pflag.Value.
func (f *hostsFlag) Set(text string) (err error) {
	f.spec, err = hosts.Parse(text)
	return err
}

// Type implements pflag.Value: what --help calls the value.
func (f *hostsFlag) Type() string { return "HOSTS" }

// String implements pflag.Value: what lab.Options take; "": the lab is on this machine alone.
func (f *hostsFlag) String() string {
	if !f.given() {
		return ""
	}
	return f.spec.String()
}

// given reports whether there are to be several hosts.
func (f *hostsFlag) given() bool { return f.spec.Kind != "" }

// join has this process be the worker of its host, if somebody has started one on each host of the lab, and another is the first. It
// returns at once otherwise.
func (f *hostsFlag) join() error {
	if f.spec.Kind != hosts.Kubernetes {
		return nil
	}
	pod, err := hosts.ThisPod()
	if err != nil || pod.Index == 0 {
		return err
	}
	return pod.BeWorker()
}

// isForOneRun refuses what a command would do but run one file, where the lab's hosts end with the command.
func (f *hostsFlag) isForOneRun(what string) error {
	if f.spec.Kind != hosts.Kubernetes {
		return nil
	}
	return misuse("%s: the pods of --hosts %s end with the command that they were started for, expected `ndklab run` of one file", what, f.spec)
}

// place returns what is said of the placement of a lab on hosts that are alike, nil if there are none. Nothing else
// is known of them before the lab is made.
func (f *hostsFlag) place(t *topology.Topology) (*parts.Summary, error) {
	if f.spec.Kind == "" {
		return nil, nil
	}
	names, err := f.spec.Known(os.Getenv)
	if err != nil {
		return nil, err
	}
	if names == nil {
		return nil, misuse("--dry-run with --hosts %s: its hosts are known when the lab is made, expected local:N for as many, or their names", f.spec)
	}
	on := make([]parts.Host, len(names))
	for i, name := range names {
		on[i] = parts.Host{Name: name, CPUs: 1}
	}
	p, err := parts.Plan(t, on, parts.UsualApart)
	if list := (topology.ErrorList)(nil); err != nil && !errors.As(err, &list) { // it has no one place
		return nil, misuse("%v", err)
	}
	if err != nil {
		return nil, err
	}
	return p.Summary(parts.UsualApart), nil
}
