package lab

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/topology"
)

func ref[T any](v T) *T { return &v }

// states are the states of all links of a lab.
func states(t testing.TB, l *Lab) string {
	t.Helper()
	links, err := l.Links.Inspect(testContext(t), "")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, k := range links {
		all = append(all, k.State)
	}
	return strings.Join(all, " ")
}

// verified returns the findings of probes of a link. On a busy machine the kernel may have no room
// for what an ordinary user's socket is to see; then they are sent again.
func verified(t *testing.T, l *Lab, endpoint string, probes Probes) (v *report.Verification) {
	t.Helper()
	const noRoom = "the kernel had no room"
	eventually(t, testTime, func() string {
		var err error
		if v, err = l.Links.Verify(testContext(t), endpoint, probes); err != nil {
			if strings.Contains(err.Error(), noRoom) {
				return err.Error()
			}
			t.Fatal(err)
		}
		for _, d := range v.Directions {
			if strings.Contains(d.Remark, noRoom) {
				return d.Remark
			}
		}
		return ""
	})
	return v
}

// Probes find what a link is set to, whoever carries it, and nothing where there is
// nothing to find.
func TestVerifyLink(t *testing.T) {
	topo := ring(uniqueName(t), 3)
	topo.Links[1].Directions = [2]topology.Impairment{
		{Delay: 5 * time.Millisecond, Loss: topology.Loss{Rate: 0.2}, Duplicate: 0.1, Rate: 100_000_000},
		{Delay: time.Millisecond, Corrupt: topology.Corrupt{Probability: 0.1}},
	}
	for i := range topo.Links {
		topo.Links[i].Tolerance = patient
	}
	l := start(t, topo)
	plain := verified(t, l, "n0:eth0", Probes{Count: 500})
	if d := plain.Directions[0]; !plain.Passed || plain.Engine != "plain" || d.Sent != 500 || d.Received != 500 || d.Delay.P50 <= 0 || !prompt(d.Delay.Min, 0) {
		t.Errorf("plain: %+v", plain)
	}
	impaired := verified(t, l, "n2:eth1", Probes{})
	there, back := impaired.Directions[0], impaired.Directions[1]
	if !impaired.Passed || there.From != "n1:eth0" || there.Sent != 1000 || there.Lost < 100 || there.Duplicated < 30 ||
		!prompt(there.Delay.Min, 5000) || there.RateGbps == nil || !prompt(back.Delay.Min, 1000) || back.Lost != 0 || back.Corrupted < 30 || back.RateGbps != nil {
		t.Errorf("impaired: %+v", impaired)
	}
	// So few that none leaves along with one that is late.
	few := verified(t, l, "n2:eth1", Probes{Count: 50, PerSecond: 200})
	if there, back := few.Directions[0].Delay.Min, few.Directions[1].Delay.Min; !prompt(there, 5000) || !prompt(back, 1000) {
		t.Errorf("delays of %v and %v us at the least, asked 5000 and 1000", there, back)
	}

	for name, probes := range map[string]Probes{"too small": {Size: 10}, "too large": {Size: 5000}, "too many": {Count: MaxProbes + 1}, "negative": {PerSecond: -1}} {
		t.Run(name, func(t *testing.T) {
			_, err := l.Links.Verify(testContext(t), "n0:eth0", probes)
			wantCode(t, err, control.Usage)
		})
	}
	if err := l.Links.Down(testContext(t), "n0:eth0"); err != nil {
		t.Fatal(err)
	}
	_, err := l.Links.Verify(testContext(t), "n0:eth0", Probes{})
	wantCode(t, err, control.Usage)
	if !strings.Contains(err.Error(), "is down") {
		t.Error(err)
	}
}

// A link that leaves its tolerance fails a run, unless the file allows it.
func TestOverrunFailsRun(t *testing.T) {
	for _, allow := range []bool{false, true} {
		t.Run(fmt.Sprint(allow), func(t *testing.T) {
			topo := runnable(t, "delay: 1ms", `
workloads:
  - {name: w, from: client, to: server, operation: send, size: 64B, count: 500}
`)
			topo.Links[0].Tolerance = topology.Tolerance{Delay: 1, DelayP99: 1, Rate: 1, Loss: 1} // nanoseconds
			topo.Links[0].AllowOverrun = allow
			r := runLab(t, start(t, topo))
			found := r.Links[0].Directions[0].Overruns
			if len(found) == 0 || r.Passed != allow || (len(r.Problems) == 0) != allow {
				t.Errorf("passed %v, overruns %+v, problems %q", r.Passed, found, r.Problems)
			}
		})
	}
}

// Decisions are recorded to the last packet, and the same packets meet them again.
func TestRecordAndReplay(t *testing.T) {
	const packets = 200
	run := func(name string, seed uint64, options Options) {
		t.Run(name, func(t *testing.T) {
			topo := ring(uniqueName(t), 2)
			topo.Seed = seed
			topo.Links[0].Directions[0] = topology.Impairment{Loss: topology.Loss{Rate: 0.3}}
			l := startWith(t, topo, options)
			if got := program(t, l, "n1", "echo 5000").line(t); got != "bound" {
				t.Fatal(got)
			}
			program(t, l, "n0", fmt.Sprintf("send 10.0.0.2:5000 %d 1 100", packets)).wait(t)
			eventually(t, testTime, func() string { // the engine has taken all
				d := direction(t, l, 0)
				if d.Packets < packets || options.Replay != nil && (d.Replayed == nil || d.Replayed.Packets < packets) {
					return fmt.Sprintf("packets: %d, replayed: %+v", d.Packets, d.Replayed)
				}
				return ""
			})
		})
	}
	dir := t.TempDir()
	create := func(name string) *os.File {
		file, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { file.Close() })
		return file
	}
	first, second := create("first"), create("second")
	run("record", 1, Options{Record: first})
	log, err := os.Open(first.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	run("replay", 2, Options{Record: second, Replay: log})
	again, another := create("again"), create("another")
	run("the same seed", 1, Options{Record: again})
	run("another seed", 2, Options{Record: another})
	recorded, replayed := fates(t, first.Name()), fates(t, second.Name())
	if len(recorded) < packets {
		t.Fatalf("%d decisions, want %d", len(recorded), packets)
	}
	if diff := cmp.Diff(recorded[:packets], replayed[:min(packets, len(replayed))]); diff != "" {
		t.Errorf("-recorded +replayed:\n%s", diff)
	}
	if diff := cmp.Diff(recorded[:packets], fates(t, again.Name())[:packets]); diff != "" {
		t.Errorf("the same seed (-once +again):\n%s", diff)
	}
	if slices.Equal(recorded[:packets], fates(t, another.Name())[:packets]) {
		t.Error("another seed, but the same fates")
	}
}

// fates returns the fates of the packets of the first direction, by a log.
func fates(t *testing.T, name string) []string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for line := range strings.Lines(string(data)) {
		var r struct {
			Place     uint64
			Direction int
			Fate      string
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if r.Place > 0 && r.Direction == 0 {
			all = append(all, r.Fate)
		}
	}
	return all
}

// A file that is no log is refused, and nothing of the lab is left.
func TestReplayNonsense(t *testing.T) {
	name := filepath.Join(t.TempDir(), "nonsense")
	for _, text := range []string{"", "name: pair\n", "{\"ndklab\":\"decisions\",\"version\":1,\"seed\":1}\n{\"link\":7}\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		topo := ring(uniqueName(t), 2)
		_, err = Start(testContext(t), topo, Options{Replay: file})
		file.Close()
		wantCode(t, err, control.Usage)
		if rest := remains(t, topo.Name); rest != "" {
			t.Errorf("left behind: %s", rest)
		}
	}
}

// A burst that shows a rate is no more than the queue holds, and shows none where
// that is not a burst.
func TestVerifyRate(t *testing.T) {
	topo := ring(uniqueName(t), 3)
	topo.Links[0].Directions = [2]topology.Impairment{{Rate: 1_000_000_000}, {Rate: 50_000_000, Queue: topology.Queue{Bytes: 64 << 10}}}
	topo.Links[1].Directions[0] = topology.Impairment{Rate: 10_000_000, Queue: topology.Queue{Packets: 10}}
	for i := range topo.Links {
		topo.Links[i].Tolerance = patient
	}
	l := start(t, topo)
	// A busy machine may send less, and, if it pauses, what it owes at once.
	eventually(t, testTime, func() string {
		v, err := l.Links.Verify(testContext(t), "n0:eth0", Probes{Count: 50})
		if err != nil {
			t.Fatal(err)
		}
		for i, most := range []float64{1.2, 0.06} { // Gb/s
			d := v.Directions[i]
			if d.RateGbps == nil && d.Remark == "" || d.RateGbps != nil && *d.RateGbps > most {
				return fmt.Sprintf("%s: %+v", d.From, d)
			}
		}
		return ""
	})
	v := verified(t, l, "n2:eth1", Probes{Count: 50})
	if d := v.Directions[0]; d.RateGbps != nil || !strings.Contains(d.Remark, "holds 10 probes") && !strings.Contains(d.Remark, "holds 11 probes") {
		t.Errorf("a queue of 10 packets: %v, %s", d.RateGbps, d.Remark)
	}
}

// A link that is changed while it is probed is no fault of anybody's but the user's.
func TestVerifyChangedLink(t *testing.T) {
	l := start(t, ring(uniqueName(t), 3))
	verified := make(chan error, 1)
	ctx := testContext(t)
	go func() {
		_, err := l.Links.Verify(ctx, "n0:eth0", Probes{Count: 500})
		for err == nil { // we got no processor meanwhile
			_, err = l.Links.Verify(ctx, "n0:eth0", Probes{Count: 500})
		}
		verified <- err
	}()
	for i := 1; ; i++ {
		if err := l.Links.Set(testContext(t), "n0:eth0", "", topology.Change{Delay: new(time.Duration(i) * time.Microsecond)}); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-verified:
			wantCode(t, err, control.Usage)
			if !strings.Contains(err.Error(), "was changed while it was probed: probe it again") {
				t.Error(err)
			}
			return
		default:
		}
	}
}
