package programs

import (
	"bufio"
	"context"
	_ "embed" // of the program
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/fabric/labtest"
	"github.com/ndklab/ndklab/internal/need"
)

// mpis are the two that Debian has: how each compiles, and starts a program in the nodes that a file names.
// UCX may use neither TCP nor shared memory.
var mpis = []struct{ name, compiler, hosts, run string }{
	{
		"MPICH", "mpicc.mpich", "%s:1\n", "mpiexec.hydra -launcher ssh -launcher-exec AGENT -f HOSTS -n RANKS " +
			"-genv UCX_TLS rc_v,ud_v,self",
	},
	{
		"Open MPI", "mpicc.openmpi", "%s slots=1\n", "mpirun.openmpi --allow-run-as-root --mca plm_rsh_agent AGENT " +
			"--mca plm_rsh_no_tree_spawn 1 --hostfile HOSTS -n RANKS --bind-to none --mca pml ucx --mca btl self -x UCX_TLS=rc_v,ud_v,self",
	},
}

// TestMPI has eight nodes compute together.
func TestMPI(t *testing.T) {
	fit(t)
	l, nodes := starLab(t, 8)
	for _, m := range mpis {
		t.Run(m.name, func(t *testing.T) {
			need.Check(t, need.Programs(programs(m.compiler, m.run)...))
			l := l.In(t)
			folder := t.TempDir()
			program, hosts := filepath.Join(folder, "collectives"), filepath.Join(folder, "hosts")
			if err := os.WriteFile(program+".c", source, 0o644); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command(m.compiler, "-O2", "-o", program, program+".c").CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", m.compiler, err, out)
			}
			var text string
			for _, n := range nodes {
				text += fmt.Sprintf(m.hosts, n)
			}
			if err := os.WriteFile(hosts, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			before := sentBy(l, nodes)
			ctx, cancel := context.WithTimeout(l.Context(), mpiTime)
			defer cancel()
			agent := startAgent(ctx, t, l, folder)
			run := strings.NewReplacer("AGENT", agent, "HOSTS", hosts, "RANKS", fmt.Sprint(len(nodes))).Replace(m.run)
			out, err := l.Node(nodes[0]).Run(ctx, "sh", "-c", run+" "+program+" 1000 2>&1")
			if want := fmt.Sprintf("%d ranks, 0 wrong\n", len(nodes)); err != nil || !strings.Contains(out, want) {
				t.Fatalf("%v, want %q:\n%s", err, want, out)
			}
			// Each sends its part of the all-to-alls and of the ring, if nothing else, to seven others.
			for i, sent := range sentBy(l, nodes) {
				if least := uint64(7 * 2 * 4 * 1000); sent-before[i] < least {
					t.Errorf("%s has sent %d bytes by RDMA, want at least %d", nodes[i], sent-before[i], least)
				}
			}
		})
	}
}

// starLab is so many hosts at a switch.
func starLab(t *testing.T, n int) (l *labtest.Lab, nodes []string) {
	t.Helper()
	topo := labtest.Topology().LinkDefaults(labtest.MTU(4200)).Switch("switch")
	for i := range n {
		name := fmt.Sprint("n", i+1)
		nodes = append(nodes, name)
		topo = topo.Host(name).Link(name, fmt.Sprint("switch:p", i+1))
	}
	return labtest.Up(t, topo), nodes
}

// mpiTime bounds a run of all ranks, which have two processors where this is tested.
const mpiTime = 90 * time.Second

//go:embed testdata/collectives.c
var source []byte

// sentBy counts the bytes that each node has sent by RDMA.
func sentBy(l *labtest.Lab, nodes []string) (sent []uint64) {
	for _, n := range nodes {
		sent = append(sent, l.Node(n).Counters()["RDMAOutOctets"])
	}
	return sent
}

// startAgent makes a program by which launchers start others in nodes, as they do by ssh, of which nodes have no
// server: it writes what is to be started into a pipe, and waits for its end at another. Nodes do not know of the lab
// that they are in, so that it is this process that starts it.
func startAgent(ctx context.Context, t *testing.T, l *labtest.Lab, folder string) string {
	pipe := makePipe(t, filepath.Join(folder, "launch"))
	agent := filepath.Join(folder, "agent")
	if err := os.WriteFile(agent, []byte(strings.ReplaceAll(agentScript, "FOLDER", folder)), 0o755); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for lines := bufio.NewScanner(pipe); lines.Scan(); {
			if part := strings.SplitN(lines.Text(), "\t", 3); len(part) == 3 {
				go launchIn(ctx, l.Node(part[0]), part[1], part[2])
			}
		}
	}()
	t.Cleanup(func() {
		_ = pipe.Close() // ends the goroutine
		<-done
	})
	return agent
}

// The agent's arguments are options, a node, and a command. It opens its pipe for writing, too, since that does not wait.
const agentScript = `#!/bin/sh
while case $1 in -*) true;; *) false;; esac; do shift; done
node=$1; shift
end=FOLDER/end.$$
mkfifo $end && exec 3<>$end
printf '%s\t%s\t%s\n' "$node" "$end" "$*" >FOLDER/launch
read line <&3
`

// launchIn runs a command in a node, and says so to the pipe that the agent waits at.
func launchIn(ctx context.Context, n *labtest.Node, end, command string) {
	_, _ = n.Run(ctx, "sh", "-c", command+" >/dev/null 2>&1") // its launcher learns of its fate by itself
	_ = os.WriteFile(end, []byte("\n"), 0)
}
