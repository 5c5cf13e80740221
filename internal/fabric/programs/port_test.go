package programs

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ndklab/ndklab/fabric/labtest"
	"github.com/ndklab/ndklab/internal/need"
)

// TestPort: programs see the port go down with the link and come back with it.
func TestPort(t *testing.T) {
	fit(t)
	const watch, show = "ibv_asyncwatch", "ibv_devinfo"
	need.Check(t, need.Programs(programs(watch, show)...))
	l := labtest.Up(t, labtest.Topology().Hosts("server", "client").Link("server", "client"))
	watching := start(l.Context(), t, l, "client", "stdbuf -oL "+watch+" -d ndk0")
	watching.awaitReady("async event FD")
	link := l.Link("client:eth0")
	for _, change := range []struct {
		act          func()
		event, state string
		file         string
	}{
		{link.Down, "IBV_EVENT_PORT_ERR", "PORT_DOWN", "1: DOWN\n"},
		{link.Up, "IBV_EVENT_PORT_ACTIVE", "PORT_ACTIVE", "4: ACTIVE\n"},
	} {
		change.act()
		l.Eventually(func() error {
			if got := watching.output.String(); !strings.Contains(got, change.event) {
				return fmt.Errorf("ibv_asyncwatch prints no %s, but %q", change.event, got)
			}
			return nil
		})
		shown, err := l.Node("client").Run(l.Context(), show)
		if err != nil || !strings.Contains(shown, change.state) {
			t.Errorf("ibv_devinfo: %v, want %s in\n%s", err, change.state, shown)
		}
		if got, err := l.Node("client").Run(l.Context(), "cat", "/sys/class/infiniband/ndk0/ports/1/state"); err != nil || got != change.file {
			t.Errorf("the port's state is %q (%v), want %q", got, err, change.file)
		}
	}
}
