package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

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
` + "`host:` and `together:`" + ` in the file say where nodes are to be.`

// sayAlone tells the first of several tasks of a Slurm step that each makes a lab of its own. Somebody may want that, so that it is no error.
func sayAlone(w io.Writer) {
	if tasks := os.Getenv("SLURM_STEP_NUM_TASKS"); tasks != "" && tasks != "1" && os.Getenv("SLURM_PROCID") == "0" {
		fmt.Fprintf(w, "this is one of %s tasks of a Slurm step, and each makes a lab of its own: for one over all hosts, run ndklab once in the allocation, with --hosts slurm\n", tasks)
	}
}

// A hostsFlag is the flag --hosts. It is a pflag.Value.
type hostsFlag struct{ spec hosts.Spec }

// addHosts adds --hosts.
func (f *fileFlags) addHosts(cmd *cobra.Command) {
	cmd.Flags().Var(&f.hosts, "hosts", "lay the lab over these hosts")
}

// Set implements pflag.Value.
func (f *hostsFlag) Set(text string) (err error) {
	if strings.ContainsFunc(text, unicode.IsControl) {
		return errors.New("a control character, expected names of hosts without")
	}
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
	var on []parts.Host
	switch f.spec.Kind {
	case hosts.Local:
		on = parts.Alike(f.spec.Count)
	case hosts.SSH:
		for _, name := range f.spec.Names {
			on = append(on, parts.Host{Name: name})
		}
	case "":
		return nil, nil
	default:
		return nil, misuse("--dry-run with --hosts %s: the allocation says who its hosts are when the lab is made, expected local:N for as many, or their names", f.spec)
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
