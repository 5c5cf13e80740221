package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/ndklab/ndklab/internal/fabric/live"
)

// done has the server's answer to a change.
type done struct {
	Command string
	Undo    []live.Change
	Text    string
	Error   string
}

// change has a change done, and what is told of it.
func (p page) change(t testing.TB, c *live.Change) (d done) {
	t.Helper()
	if status := p.ask(t, "POST", "api/change", c, &d); status != http.StatusOK {
		t.Fatalf("%+v: %d: %s", c, status, d.Error)
	}
	return d
}

// standing returns the states of the nodes and links of a lab, as the command line shows them.
func standing(t testing.TB, lab string) string {
	t.Helper()
	var i struct {
		Nodes []struct{ Name, State string }
		Links []struct {
			State      string
			Directions []struct{ Settings []string }
		}
	}
	if err := json.Unmarshal([]byte(ndklab(t, "inspect", lab, "-o", "json")), &i); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%+v", i)
}

// Each change does what the command does that is shown with it, and its undo brings back what was.
func TestChanges(t *testing.T) {
	lab := up(t, 3)
	c, p := openPage(t, lab)
	defer func() {
		if err := c.Process.Signal(syscall.SIGINT); err != nil {
			t.Error(err)
		}
		c.ends(t, 0, "")
	}()
	shell := func(command string) {
		t.Helper()
		sh := exec.CommandContext(t.Context(), "sh", "-c", command)
		sh.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
		if out, err := sh.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
	}
	const link = "h0:eth0"
	for _, before := range []string{"", "ndklab link set LAB/h0:eth0 loss=2% --from h0", "ndklab link down LAB/h0:eth0", "ndklab pause LAB/h1", "ndklab stop LAB/h1"} {
		if before != "" {
			shell(strings.ReplaceAll(before, "LAB", lab))
		}
		for _, change := range []live.Change{
			{Act: "set", Endpoint: link, Settings: []string{"loss=1%", "delay=2ms"}},
			{Act: "set", Endpoint: link, From: "s", Settings: []string{"loss={rate: 1%, burst: 5}"}},
			{Act: "set", Endpoint: "s:p0", Settings: []string{"rate=none", "cut=true"}},
			{Act: "set", Endpoint: link, Settings: []string{"faults=[{match: {opcode: ACKNOWLEDGE, nth: 3}, action: drop}]"}},
			{Act: "reset", Endpoint: link},
			{Act: "cut", Endpoint: link},
			{Act: "cut", Endpoint: link, From: "h0"},
			{Act: "heal", Endpoint: link},
			{Act: "partition", Sets: [][]string{{"h0", "s"}, {"h1", "h2"}}},
			{Act: "pause", Node: "h1"},
			{Act: "resume", Node: "h1"},
			{Act: "stop", Node: "h1"},
			{Act: "start", Node: "h1"},
			{Act: "kill", Node: "h1"},
		} {
			was := standing(t, lab)
			d := done{}
			if p.ask(t, "POST", "api/change", change, &d) != http.StatusOK { // as resume of a node that is not paused
				if now := standing(t, lab); now != was || d.Error == "" {
					t.Errorf("after %q: %+v was refused: %q, and changed\n%s into\n%s", before, change, d.Error, was, now)
				}
				continue
			}
			is := standing(t, lab)
			if (is != was) != (len(d.Undo) > 0) && change.Act != "partition" {
				t.Errorf("after %q: %s changed\n%s into\n%s, and is undone by %v", before, d.Command, was, is, d.Undo)
			}
			paused := strings.HasPrefix(before, "ndklab pause") && (change.Act == "stop" || change.Act == "kill" || change.Act == "start")
			if len(d.Undo) == 0 || paused { // what was paused is not paused again
				if paused {
					var undone done
					p.ask(t, "POST", "api/undo", nil, &undone)
					shell("ndklab pause " + lab + "/h1")
				}
				continue
			}
			var next, undone done
			if p.ask(t, "GET", "api/undo", nil, &next); p.ask(t, "POST", "api/undo", nil, &undone) != http.StatusOK || undone.Command != next.Command {
				t.Fatalf("undo of %s: %s %s, announced as %s", d.Command, undone.Command, undone.Error, next.Command)
			}
			if now := standing(t, lab); now != was {
				t.Errorf("after %q: %s undoes %s, and\n%s has become\n%s", before, undone.Command, d.Command, was, now)
			}
			shell(d.Command)
			if now := standing(t, lab); now != is {
				t.Errorf("after %q: the page made\n%s, and %s\n%s", before, is, d.Command, now)
			}
			shell(undone.Command)
			if now := standing(t, lab); now != was {
				t.Errorf("after %q: before %s there was\n%s, and %s made\n%s", before, d.Command, was, undone.Command, now)
			}
		}
		shell(strings.ReplaceAll("ndklab link up LAB/h0:eth0 && ndklab link reset LAB/h0:eth0", "LAB", lab))
		if strings.Contains(before, "pause") {
			shell("ndklab resume " + lab + "/h1")
		}
	}
	shell("ndklab start " + lab + "/h1")
	var d done
	if status := p.ask(t, "POST", "api/undo", nil, &d); status != http.StatusBadRequest || d.Error != "there is no change to undo" {
		t.Errorf("%d %+v", status, d)
	}
	const asked = "of what is not there"
	for _, c := range []struct {
		change live.Change
		want   string
	}{
		{live.Change{Act: "set", Endpoint: "h9:eth0", Settings: []string{"loss=1%"}}, `has no link with the endpoint "h9:eth0"`},
		{live.Change{Act: "pause", Node: "h9"}, `has no node "h9"`},
		{live.Change{Act: "perf", Node: "h0", To: "h9", Settings: []string{"test=write-bw"}}, `"h9"`},
	} {
		if status := p.ask(t, "POST", "api/change", c.change, &d); status != http.StatusBadRequest || !strings.Contains(d.Error, c.want) {
			t.Errorf("%s: %+v: %d %q", asked, c.change, status, d.Error)
		}
	}
	d = done{}
	was := standing(t, lab)
	if p.ask(t, "POST", "api/change?dry=1", live.Change{Act: "cut", Endpoint: link}, &d); d.Command != "ndklab link down "+lab+"/h0:eth0" || standing(t, lab) != was {
		t.Errorf("dry: %+v", d)
	}
}
