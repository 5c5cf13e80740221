package manifest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// The objects of a manifest.
type objects struct {
	service core.Service
	policy  networking.NetworkPolicy
	file    core.ConfigMap
	job     batch.Job
}

// read reads a manifest as the API server of Kubernetes does that refuses what it does not know.
func read(text string) (o objects, err error) {
	into := map[string]any{"Service": &o.service, "NetworkPolicy": &o.policy, "ConfigMap": &o.file, "Job": &o.job}
	for i, document := range strings.Split(text, "\n---\n") {
		if i == 0 {
			continue // comments
		}
		data, err := yaml.YAMLToJSONStrict([]byte(document + "\n"))
		if err != nil {
			return o, err
		}
		kind := struct{ Kind string }{}
		if err := json.UnmarshalCaseSensitivePreserveInts(data, &struct {
			Kind *string `json:"kind"`
		}{&kind.Kind}); err != nil {
			return o, err
		}
		object, ok := into[kind.Kind]
		if !ok {
			return o, fmt.Errorf("kind %q", kind.Kind)
		}
		delete(into, kind.Kind)
		unknown, err := json.UnmarshalStrict(data, object)
		if err := errors.Join(append(unknown, err)...); err != nil {
			return o, fmt.Errorf("%s: %w", kind.Kind, err)
		}
	}
	if len(into) > 0 {
		return o, fmt.Errorf("there are no %v", into)
	}
	return o, nil
}

func order() Order {
	return Order{Name: "big", Hosts: 3, Image: "registry.example/ndklab:1", Command: "ndklab generate kubernetes big.yaml", File: "seed: 1\n"}
}

// TestManifest: the objects are what the lab needs of Kubernetes, in its own terms.
func TestManifest(t *testing.T) {
	o := order()
	o.Namespace, o.Variables, o.Arguments = "labs", []string{"DELAY=1ms", "TEXT=$(PATH) \"$x\""}, []string{"--name", "big"}
	text := o.Generate()
	if text != o.Generate() {
		t.Error("the same order has another text")
	}
	is, err := read(text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, of := range []struct{ name, namespace string }{
		{is.service.Name, is.service.Namespace}, {is.policy.Name, is.policy.Namespace}, {is.file.Name, is.file.Namespace}, {is.job.Name, is.job.Namespace},
	} {
		if of.name != "big" || of.namespace != "labs" {
			t.Errorf("%+v", of)
		}
	}
	pods := map[string]string{"batch.kubernetes.io/job-name": "big"}
	if s := is.service.Spec; s.ClusterIP != core.ClusterIPNone || !s.PublishNotReadyAddresses || !cmp.Equal(s.Selector, pods) {
		t.Errorf("the Service: %+v", s)
	}
	if p := is.policy.Spec; !cmp.Equal(p.PodSelector.MatchLabels, pods) || !cmp.Equal(p.Ingress[0].From[0].PodSelector.MatchLabels, pods) {
		t.Errorf("the NetworkPolicy: %+v", p)
	}
	job := is.job.Spec
	if *job.CompletionMode != batch.IndexedCompletion || *job.Completions != 3 || *job.Parallelism != 3 || *job.BackoffLimitPerIndex != 0 || job.BackoffLimit != nil {
		t.Errorf("the Job: %+v", job)
	}
	for _, rule := range job.PodFailurePolicy.Rules {
		if rule.Action != batch.PodFailurePolicyActionFailJob || !slices.Equal(rule.OnExitCodes.Values, []int32{2, 3, 4}) {
			t.Errorf("%+v", rule)
		}
	}
	pod := job.Template.Spec
	if pod.Subdomain != is.service.Name || pod.RestartPolicy != core.RestartPolicyNever || *pod.AutomountServiceAccountToken || pod.HostNetwork {
		t.Errorf("the pods: %+v", pod)
	}
	if apart := pod.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0]; apart.TopologyKey != core.LabelHostname || !cmp.Equal(apart.LabelSelector.MatchLabels, pods) {
		t.Errorf("the pods are together: %+v", apart)
	}
	c := pod.Containers[0]
	if want := []string{"ndklab", "run", "/lab/big.ndklab.yaml", "--hosts", "kubernetes", "--name", "big"}; !slices.Equal(c.Command, want) || c.Image != o.Image {
		t.Errorf("%v of %s, want %v", c.Command, c.Image, want)
	}
	if s := c.SecurityContext; s.Privileged != nil || !slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}) || !slices.Equal(s.Capabilities.Add, []core.Capability{"SYS_ADMIN", "NET_ADMIN", "NET_RAW"}) {
		t.Errorf("pods may do %+v", s)
	}
	values := map[string]string{}
	for _, v := range c.Env {
		values[v.Name] = v.Value
		if v.ValueFrom != nil {
			values[v.Name] = v.ValueFrom.FieldRef.FieldPath
		}
	}
	want := map[string]string{
		"NDKLAB_POD_COUNT": "3", "NDKLAB_POD_JOB": "big", "NDKLAB_POD_HEAD": "big-0.big:7437", "NDKLAB_POD_KEY": "/key/key",
		"NDKLAB_POD_UID": "metadata.labels['batch.kubernetes.io/controller-uid']", "DELAY": "1ms", "TEXT": `$$(PATH) "$$x"`,
	}
	if diff := cmp.Diff(want, values); diff != "" {
		t.Error(diff)
	}
	for _, m := range c.VolumeMounts {
		if !slices.ContainsFunc(pod.Volumes, func(v core.Volume) bool { return v.Name == m.Name }) {
			t.Errorf("there is no volume %s", m.Name)
		}
	}
	secret := pod.Volumes[slices.IndexFunc(pod.Volumes, func(v core.Volume) bool { return v.Secret != nil })].Secret
	if secret.SecretName != "big-key" || *secret.DefaultMode != 0o400 {
		t.Errorf("the key: %+v", secret)
	}
}

// TestMisspelt: the test above reads strictly.
func TestMisspelt(t *testing.T) {
	text := order().Generate()
	for right, wrong := range map[string]string{
		"completionMode": "completionsMode", "podAntiAffinity": "podAntiaffinity", "publishNotReadyAddresses": "publishNotReady", "capabilities": "capability",
		"  parallelism: 3": "  completions: 3",
	} {
		if !strings.Contains(text, right) {
			t.Errorf("there is no %s", right)
		}
		if _, err := read(strings.Replace(text, right, wrong, 1)); err == nil {
			t.Errorf("%s was read", wrong)
		}
	}
}

// TestFile: the text of a file is in the manifest as it is, whatever its form.
func TestFile(t *testing.T) {
	for _, file := range []string{
		"a: 1\n", "a: 1", "a: 1\n\n\n", "  a: 1\n  b: 2\n", "\n\na: 1\n", "a: |\n  x \n   \n\ty\n", "---\na: 1\n---\n", "a: \"é ∞ 😀\"\n", "\ufeffa: 1\n", "a: \"\u2028\u0085\"\n", "a: 1\r\nb: 2\r\n", "# ${X:=1}\n",
	} {
		o := order()
		o.File = file
		is, err := read(o.Generate())
		if err != nil {
			t.Errorf("%q: %v", file, err)
			continue
		}
		if got := is.file.Data["big.ndklab.yaml"]; got != file {
			t.Errorf("%q is %q", file, got)
		}
	}
}

// TestCheck: what Kubernetes would refuse is refused before.
func TestCheck(t *testing.T) {
	long, digit := order(), order()
	long.File = strings.Repeat("#", MaxFile+1)
	digit.Name = "8hosts"
	for want, o := range map[string]Order{"a ConfigMap takes at most 1024000": long, `the lab's name "8hosts" begins with a digit`: digit} {
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := order().Check(); err != nil {
		t.Error(err)
	}
}
