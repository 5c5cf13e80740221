package doctor

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ndklab/ndklab/internal/hosts"
)

// TestExamineHosts: each host is examined, by a process there.
func TestExamineHosts(t *testing.T) {
	s, err := ExamineHosts(t.Context(), hosts.Spec{Kind: hosts.Local, Count: 2})
	if err != nil {
		t.Fatal(err)
	}
	here := Examine(t.Context())
	names := func(d Diagnosis) (all []string) {
		for _, f := range d.Findings {
			all = append(all, f.Name)
		}
		return all
	}
	if s.CanRun != here.CanRun || len(s.Hosts) != 2 {
		t.Fatalf("%+v, want two hosts as this machine", s)
	}
	for i, h := range s.Hosts {
		if diff := cmp.Diff(names(here), names(h.Diagnosis)); diff != "" || h.Error != "" || h.Name != []string{"host1", "host2"}[i] {
			t.Errorf("%s: %s %s", h.Name, h.Error, diff)
		}
	}
}

func TestExamineHostsRefuses(t *testing.T) {
	_, err := ExamineHosts(t.Context(), hosts.Spec{Kind: hosts.Task})
	if want := "--hosts step is for `ndklab run`, expected slurm"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestSurvey: hosts are in order, each with what could be had, and the worst counts.
func TestSurvey(t *testing.T) {
	missing := func(name string, required bool, remedy string) Finding {
		return Finding{Name: name, State: Missing, Required: required, Found: "absent", Remedy: remedy}
	}
	good := Diagnosis{CanRun: true, Findings: []Finding{{Name: "system", State: OK}, {Name: "buffers", State: Limited, Remedy: "root"}, missing("netem", false, "")}}
	bad := Diagnosis{Findings: []Finding{missing("namespaces", true, "user.max_user_namespaces"), missing("tshark", false, "install it")}}
	visited := []hosts.Visited{{Name: "node2"}, {Name: "n1"}, {Name: "n3", Err: errors.New("no ssh")}}
	s := survey(visited, map[string]HostDiagnosis{"n1": {Name: "n1", Diagnosis: bad}, "node2": {Name: "node2", Diagnosis: good}})
	var text bytes.Buffer
	if err := s.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	want := `host   labs        missing
node2  can run     -
n1     cannot run  namespaces: absent; remedy: user.max_user_namespaces
                   tshark: absent; remedy: install it
n3     not there   no ssh

labs can run on 1 of 3 hosts
`
	if diff := cmp.Diff(want, text.String()); diff != "" || s.CanRun {
		t.Errorf("can run: %v\n%s", s.CanRun, diff)
	}
	out, err := json.Marshal(s.Hosts[2])
	if want := `{"name":"n3","error":"no ssh","can_run":false,"findings":[]}`; err != nil || string(out) != want {
		t.Errorf("%s, %v, want %s", out, err, want)
	}
	if all := survey(visited[:1], map[string]HostDiagnosis{"node2": {Name: "node2", Diagnosis: good}}); !all.CanRun {
		t.Error("labs can run on all, and it says otherwise")
	}
}
