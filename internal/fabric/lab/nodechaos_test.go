package lab

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/need"
	"github.com/ndklab/ndklab/internal/node"
	"golang.org/x/sys/unix"
)

// chaosSeed seeds random moments; a failure is repeated with it as far as the machine's
// timing allows.
const chaosSeed = 1

// While nodes are stopped, started, paused and killed, the supervisor is killed, and
// nothing is left: neither daemons nor stopped processes.
func TestSupervisorDiesAmidChanges(t *testing.T) {
	need.Time(t)
	random := rand.New(rand.NewPCG(chaosSeed, 1))
	name := uniqueName(t)
	for range 10 {
		topo := ring(name, 4)
		topo.Links[1].Directions[0].Delay = time.Millisecond
		for i := range topo.Nodes {
			topo.Nodes[i].Restart = i%2 == 0
		}
		l, err := Start(testContext(t), topo, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range topo.Nodes {
			runCommand(t, l, n.Name, node.Command{Args: []string{"sh", "-c", "exec >/dev/null 2>&1; setsid sleep 1000 &"}}).wait(t)
		}
		act(t, l, "n3", PauseNode, nodePaused)
		ended := make(chan struct{})
		for i, actions := range [][]Action{{StopNode, StartNode}, {RestartNode}, {PauseNode, ResumeNode, KillNode, StartNode}} {
			go func() {
				defer func() { ended <- struct{}{} }()
				for {
					for _, action := range actions {
						// It fails when the lab has ended.
						_, _ = call(context.Background(), l.session, methodChange, changeParams{Node: topo.Nodes[i].Name, Action: action, Signal: unix.SIGKILL})
					}
					select {
					case <-l.Done():
						return
					default:
					}
				}
			}()
		}
		<-time.After(time.Duration(random.Int64N(int64(200 * time.Millisecond))))
		kill(t, processOf(t, name, "ndklab-supervisor"))
		for range 3 {
			<-ended
		}
		eventually(t, testTime, func() string { return remains(t, name) })
	}
}
