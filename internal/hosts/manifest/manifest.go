// Package manifest writes what has Kubernetes run a lab over several hosts: a Job with a pod on each of them, in which
// package hosts finds the others, and what the Job needs.
//
// It makes text and nothing else, the same for the same Order, as a person would write it who wants to go on editing it. A
// secret is no part of it: the Job names the Secret that has the key. Start reading at Order.Generate.
package manifest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/ndklab/ndklab/internal/hosts"
)

// An Order describes a manifest.
type Order struct {
	Name      string // of the lab, and of all objects but the Secret
	Namespace string // of all objects; "": that of whoever applies them
	Hosts     int
	Image     string   // that has ndklab in its PATH
	Command   string   // what the first comment says that wrote the manifest
	Arguments []string // of ndklab run, beside the file and the hosts
	File      string   // the topology's text
	Variables []string // NAME=value, of the file
}

// MaxFile is the most bytes of a topology's text: a ConfigMap has at most 1 MiB (Kubernetes, concepts, ConfigMaps).
const MaxFile = 1000 << 10

// port is that at which the head listens, in the network of its own pod.
const port = 7437

// Check says why Kubernetes cannot have objects of such names; nil if it can. A name of a Service begins with a letter (RFC
// 1035); that of a lab is plain, and short enough for the host names of pods.
func (o Order) Check() error {
	switch {
	case !unicode.IsLetter(rune(o.Name[0])):
		return fmt.Errorf("the lab's name %q begins with a digit, and a Service is to have it, expected a letter: --name gives it another", o.Name)
	case len(o.File) > MaxFile:
		return fmt.Errorf("the file has %d bytes, and a ConfigMap takes at most %d: put it into the image, and a shorter one here", len(o.File), MaxFile)
	}
	return nil
}

// Generate returns the manifest. The order has been checked.
func (o Order) Generate() string {
	m := &text{Order: o}
	m.introduction()
	m.service()
	m.policy()
	m.configMap()
	m.job()
	return m.String()
}

// A text is a manifest that is being written.
type text struct {
	strings.Builder
	Order
}

// line writes one line.
func (m *text) line(format string, args ...any) { fmt.Fprintf(m, format+"\n", args...) }

// secret is the name of the Secret.
func (m *text) secret() string { return m.Name + "-key" }

// flag is the namespace as a flag of kubectl.
func (m *text) flag() string {
	if m.Namespace == "" {
		return ""
	}
	return " -n " + m.Namespace
}

func (m *text) introduction() {
	m.line("# Lab %s over %d hosts of a Kubernetes cluster: a Job with a pod on each.", m.Name, m.Hosts)
	m.line("#")
	m.line("# Once, the key by which pods know each other. It is no part of this file, which may go where anybody reads it:")
	m.line("#")
	m.line("#   kubectl%s create secret generic %s --from-literal=key=\"$(openssl rand -base64 32)\"", m.flag(), m.secret())
	m.line("#")
	m.line("# Then, with --server-side, since kubectl else keeps a copy of FILE in an annotation, which is too small for a large one:")
	m.line("#")
	m.line("#   kubectl apply --server-side -f FILE")
	m.line("#   kubectl%s wait --for=condition=Complete --timeout=10m job/%s", m.flag(), m.Name)
	m.line("#   kubectl%s logs -l batch.kubernetes.io/job-name=%s,batch.kubernetes.io/job-completion-index=0 --tail=-1    # the report", m.flag(), m.Name)
	m.line("#   kubectl delete -f FILE")
	m.line("#")
	m.line("# The pod of index 0 has the head of the lab: it prints the report, and its exit code is the run's. A Job runs once: delete it")
	m.line("# before it is applied again.")
	m.line("#")
	m.line("# Written by %q, for you to edit.", m.Command)
}

// object begins one, of which comments say more.
func (m *text) object(version, kind string, comments ...string) {
	m.line("---")
	for _, c := range comments {
		m.line("# %s", c)
	}
	m.line("apiVersion: %s", version)
	m.line("kind: %s", kind)
	m.line("metadata:")
	m.line("  name: %s", m.Name)
	if m.Namespace != "" {
		m.line("  namespace: %s", m.Namespace)
	}
	m.line("  labels: {app.kubernetes.io/name: ndklab, app.kubernetes.io/instance: %s}", m.Name)
}

func (m *text) service() {
	m.object("v1", "Service", fmt.Sprintf("The names of the pods: %s-0.%s and so on.", m.Name, m.Name))
	m.line("spec:")
	m.line("  clusterIP: None                  # names alone")
	m.line("  publishNotReadyAddresses: true   # pods find each other before they are ready")
	m.line("  selector: {batch.kubernetes.io/job-name: %s}", m.Name)
}

func (m *text) policy() {
	m.object("networking.k8s.io/v1", "NetworkPolicy",
		"Nobody but the pods of the lab reaches its pods, where the cluster's network heeds policies. Control between",
		"hosts is encrypted, and the packets of the lab are not.")
	m.line("spec:")
	m.line("  podSelector: {matchLabels: {batch.kubernetes.io/job-name: %s}}", m.Name)
	m.line("  policyTypes: [Ingress]")
	m.line("  ingress:")
	m.line("    - from: [{podSelector: {matchLabels: {batch.kubernetes.io/job-name: %s}}}]", m.Name)
}

// fileName is the topology's in its volume.
func (m *text) fileName() string { return m.Name + ".ndklab.yaml" }

func (m *text) configMap() {
	m.object("v1", "ConfigMap", "The topology file, as it was when this was written.")
	m.line("data:")
	literal := func(r rune) bool { return r == '\n' || r == '\t' || r != '\ufeff' && unicode.IsPrint(r) }
	if strings.ContainsFunc(m.File, func(r rune) bool { return !literal(r) }) {
		m.line("  %s: %s", m.fileName(), strconv.QuoteToASCII(m.File)) // which YAML reads alike (5.7, escaped characters)
		return
	}
	// A literal block keeps all (YAML 8.1): its indentation is given, since the first line may be indented, and its sign says how many
	// line breaks are at its end.
	sign := ""
	switch whole := strings.TrimRight(m.File, "\n"); len(m.File) - len(whole) {
	case 0:
		sign = "-"
	case 1:
	default:
		sign = "+"
	}
	m.line("  %s: |2%s", m.fileName(), sign)
	for l := range strings.Lines(m.File) {
		if l != "\n" {
			l = "    " + l
		}
		m.WriteString(l)
	}
	if sign == "-" {
		m.line("")
	}
}

func (m *text) job() {
	m.object("batch/v1", "Job")
	m.line("spec:")
	m.line("  completionMode: Indexed")
	m.line("  completions: %-19d # one a host; %s says the same", m.Hosts, hosts.PodCount)
	m.line("  parallelism: %-19d # all at once", m.Hosts)
	m.line("  backoffLimitPerIndex: 0          # a run that has failed is not repeated, and its pods keep their logs")
	m.line("  #activeDeadlineSeconds: 3600     # for what does not end")
	m.line("  #ttlSecondsAfterFinished: 86400  # after which it is deleted")
	m.line("  podFailurePolicy:                # a pod that cannot begin ends the others, as does the first when the lab has failed")
	m.line("    rules:")
	m.line("      - action: FailJob")
	m.line("        onExitCodes: {operator: In, values: [2, 3, 4]}")
	m.line("  template:")
	m.line("    metadata:")
	m.line("      labels: {app.kubernetes.io/name: ndklab, app.kubernetes.io/instance: %s}", m.Name)
	m.line("    spec:")
	m.line("      subdomain: %s  # the Service", m.Name)
	m.line("      restartPolicy: Never")
	m.line("      terminationGracePeriodSeconds: 10")
	m.line("      automountServiceAccountToken: false  # a lab asks nothing of Kubernetes")
	m.line("      enableServiceLinks: false            # variables for all Services, which no lab needs")
	m.line("      affinity:")
	m.line("        podAntiAffinity:                   # each pod on another host; without it several share one")
	m.line("          requiredDuringSchedulingIgnoredDuringExecution:")
	m.line("            - topologyKey: kubernetes.io/hostname")
	m.line("              labelSelector: {matchLabels: {batch.kubernetes.io/job-name: %s}}", m.Name)
	m.line("      containers:")
	m.line("        - name: ndklab")
	m.line("          image: %s", strconv.Quote(m.Image))
	m.command()
	m.line("          workingDir: /work                # where the run writes: evidence of a failure, captures")
	m.environment()
	m.line("          resources:")
	m.line("            requests: {cpu: \"2\", memory: 2Gi}")
	m.line("            limits: {memory: 2Gi}          # none of cpu: a link engine that is held back is late")
	m.line("          securityContext:                 # not privileged; docs/hosts.md says what each is for")
	m.line("            runAsUser: 0")
	m.line("            capabilities: {drop: [ALL], add: [SYS_ADMIN, NET_ADMIN, NET_RAW]}  # what programs in nodes need comes to these")
	m.line("            appArmorProfile: {type: Unconfined}  # the usual profile forbids to mount; without AppArmor this is nothing")
	m.line("          volumeMounts:")
	m.line("            - {name: lab, mountPath: /lab, readOnly: true}")
	m.line("            - {name: key, mountPath: /key, readOnly: true}")
	m.line("            - {name: run, mountPath: /run}")
	m.line("            - {name: tmp, mountPath: /tmp}")
	m.line("            - {name: work, mountPath: /work}")
	m.line("      volumes:")
	m.line("        - {name: lab, configMap: {name: %s}}", m.Name)
	m.line("        - {name: key, secret: {secretName: %s, defaultMode: 0400}}", m.secret())
	m.line("        - {name: run, emptyDir: {medium: Memory}}")
	m.line("        - {name: tmp, emptyDir: {}}")
	m.line("        - {name: work, emptyDir: {}}       # one of yours keeps what the run writes")
}

func (m *text) command() {
	m.line("          command:")
	words := slices.Concat([]string{"ndklab", "run", "/lab/" + m.fileName(), "--hosts", string(hosts.Kubernetes)}, m.Arguments)
	for _, word := range words {
		m.line("            - %s", strconv.Quote(word))
	}
}

func (m *text) environment() {
	m.line("          env:")
	m.line("            - {name: %s, value: \"%d\"}", hosts.PodCount, m.Hosts)
	m.line("            - {name: %s, value: %s}", hosts.PodJob, m.Name)
	m.line("            - {name: %s, value: \"%s-0.%s:%d\"}", hosts.PodHead, m.Name, m.Name, port)
	m.line("            - {name: %s, value: /key/key}", hosts.PodKey)
	m.line("            - name: %s       # every Job has another certificate, by the same key", hosts.PodUID)
	m.line("              valueFrom: {fieldRef: {fieldPath: \"metadata.labels['batch.kubernetes.io/controller-uid']\"}}")
	for _, v := range m.Variables {
		name, value, _ := strings.Cut(v, "=")
		// Kubernetes reads $(NAME) as another variable's value, and $$ as one $.
		m.line("            - {name: %s, value: %s}  # of the file", name, strconv.QuoteToASCII(strings.ReplaceAll(value, "$", "$$")))
	}
}
