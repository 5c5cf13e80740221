package hosts

import (
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/ndklab/ndklab/internal/control"
)

// srunFlags are those of every srun: one worker a host, which takes nothing from the user's standard input and may run on all
// processors of its host. The environment goes along, also if sbatch was told otherwise. The assignment is in it: the arguments
// are for all users to read.
var srunFlags = []string{"--ntasks-per-node=1", "--mpi=none", "--input=none", "--cpu-bind=none", "--export=ALL"}

// srunDropped begin the variables by which the allocation's own flags would change srun's: those win over ours, or contradict them
// (srun(1), input environment variables).
var srunDropped = []string{
	"SLURM_NTASKS", "SLURM_NPROCS", "SLURM_TASKS_PER_NODE", "SLURM_MEM_PER_", "SLURM_CPU_BIND", "SLURM_EXPORT_ENV", "SLURM_CPUS_PER_TASK",
	"SLURM_TRES_PER_TASK", "SLURM_DISTRIBUTION", "SLURM_HOSTFILE", "SLURM_THREADS_PER_CORE", "SLURM_HINT",
}

// srunFlags returns srunFlags, and what becomes of the workers when one of them ends, or Slurm has given up its host: all end, or
// the others go on.
func (s Spec) srunFlags() []string {
	if s.Continues {
		return append(slices.Clone(srunFlags), "--kill-on-bad-exit=0", "--no-kill")
	}
	return append(slices.Clone(srunFlags), "--kill-on-bad-exit=1")
}

// jobDropped begin the variables that say which allocation a process is in.
var jobDropped = []string{"SLURM_JOB", "SLURM_STEP", "SLURM_NNODES", "SLURM_NODELIST"}

// jobHosts returns the hosts of the allocation that this process is in.
func jobHosts(getenv func(string) string) ([]string, error) {
	job := getenv("SLURM_JOB_ID")
	if job == "" {
		return nil, control.Errorf(control.Usage, "--hosts slurm: this is no allocation of Slurm (SLURM_JOB_ID is not set), expected to be run by salloc or sbatch, or flags of srun for one: --hosts 'slurm:-N 8'")
	}
	out, err := exec.Command("scontrol", "show", "hostnames", getenv("SLURM_JOB_NODELIST")).Output()
	if err != nil {
		return nil, control.Errorf(control.Unable, "--hosts slurm: hosts of job %s: scontrol show hostnames: %v: run ndklab where Slurm's commands are installed", job, err)
	}
	names := strings.Fields(string(out))
	if len(names) == 0 || len(names) > MaxHosts {
		return nil, control.Errorf(control.Unable, "--hosts slurm: job %s has %d hosts, expected from 1 to %d", job, len(names), MaxHosts)
	}
	return names, nil
}

// jobPlan starts one worker on every host of the allocation that this process is in, or on the one that is named.
func (s Spec) jobPlan(getenv func(string) string) (plan, error) {
	names, err := jobHosts(getenv)
	if err != nil {
		return plan{}, err
	}
	job := getenv("SLURM_JOB_ID")
	processors, err := leastProcessors(getenv("SLURM_JOB_CPUS_PER_NODE"))
	if err != nil {
		return plan{}, control.Errorf(control.Unable, "--hosts slurm: job %s: %v", job, err)
	}
	var which []string
	if s.Names != nil {
		names, which = s.Names, []string{"-w", strings.Join(s.Names, ",")}
	}
	n := strconv.Itoa(len(names))
	// Without --overlap it waits for the other steps of the allocation, which this process may be one of. Without -c a worker
	// would have one processor, and without --mem=0 none of the memory that another step has asked for.
	args := append([]string{"srun", "--jobid=" + job, "--overlap", "-N", n, "-n", n, "-c", strconv.Itoa(processors), "--mem=0"}, append(which, s.srunFlags()...)...)
	c, err := srunCommand(args)
	if err != nil {
		return plan{}, err
	}
	ports, err := srunPorts()
	return plan{names: names, commands: []command{c}, ports: ports}, err
}

// leastProcessors returns the least of what a text such as "16(x2),8" has, processors of each host.
func leastProcessors(text string) (int, error) {
	least := 0
	for part := range strings.SplitSeq(text, ",") {
		number, _, _ := strings.Cut(part, "(")
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 {
			return 0, fmt.Errorf("SLURM_JOB_CPUS_PER_NODE is %q, expected such as 16(x2),8", text)
		}
		if least == 0 || n < least {
			least = n
		}
	}
	return least, nil
}

// allocationPlan has srun make an allocation, by the user's flags, which ends with the workers. It is cancelled in any
// case: it would stay if srun were killed.
func (s Spec) allocationPlan(lab string) (plan, error) {
	name := "ndklab-" + lab + "-" + rand.Text()
	args := append(append([]string{"srun"}, s.Flags...), s.srunFlags()...)
	c, err := srunCommand(append(args, "--job-name="+name))
	if err != nil {
		return plan{}, err
	}
	ports, err := srunPorts()
	c.dropped = append(c.dropped[:len(c.dropped):len(c.dropped)], jobDropped...)
	return plan{waits: true, ports: ports, commands: []command{c}, giveBack: []string{"scancel", "--quiet", "--me", "--name=" + name}}, err
}

// srunCommand is srun with workers of this program.
func srunCommand(args []string) (command, error) {
	self, err := os.Executable()
	if err != nil {
		return command{}, err
	}
	return command{what: "srun", args: append(args, self, workerCommand), dropped: srunDropped, index: -1, remedy: srunRemedy}, nil
}

// srunRemedy returns what can be done about an end of srun, by what it said last; "" if that says it.
func srunRemedy(_ int, said string) string {
	if strings.Contains(said, "execve()") {
		self, _ := os.Executable() // srunCommand had it
		return fmt.Sprintf("this program has to be at %s on all hosts (sbcast copies it)", self)
	}
	return ""
}

// taskPlan starts the worker of task 0 of a step. The other tasks are told of the head, and become the workers of their hosts.
func taskPlan(lab string, getenv func(string) string) (plan, error) {
	ports, err := srunPorts()
	return plan{announce: true, ports: ports, commands: []command{localWorker(lab, getenv("SLURMD_NODENAME"), -1)}}, err
}
