package hosts

import (
	"bytes"
	"encoding/json"
	"math"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/ndklab/ndklab/internal/control"
)

// The variables of the environment of the pods of a Job. Kubernetes sets the first, and the manifest of `ndklab generate kubernetes`
// (package manifest) the others.
const (
	PodIndex = "JOB_COMPLETION_INDEX"
	PodCount = "NDKLAB_POD_COUNT"
	PodJob   = "NDKLAB_POD_JOB"  // the Job's name: a pod's host is JOB-INDEX, as its host name is
	PodUID   = "NDKLAB_POD_UID"  // the Job's, which no other has
	PodHead  = "NDKLAB_POD_HEAD" // name and port by which others reach the first pod
	PodKey   = "NDKLAB_POD_KEY"  // the file with the key of the Secret
)

// KeySize is the least length of a pod's key, in bytes.
const KeySize = 32

// podTime bounds the time in which all pods of a Job come: Kubernetes starts each as soon as there is room for it, and images may have
// to be fetched.
const podTime = 10 * time.Minute

// A Pod is the one that this process is in, of a Job. The process of the first makes the lab, and has the worker of its own host
// started as well. Each other becomes the worker of its host. All are told beforehand what they need to find each other.
type Pod struct {
	Index       int
	names       []string // of the hosts, in order
	address     string   // of the head
	port        int
	credentials *Credentials
}

// ThisPod returns the pod of this process, by its environment.
func ThisPod() (*Pod, error) {
	for _, name := range []string{PodIndex, PodCount, PodJob, PodUID, PodHead, PodKey} {
		if os.Getenv(name) == "" {
			return nil, control.Errorf(control.Usage, "--hosts kubernetes: %s is not set, expected to be run in the pods of a Job that `ndklab generate kubernetes` has written", name)
		}
	}
	count, err := strconv.Atoi(os.Getenv(PodCount))
	if err != nil || count < 1 || count > MaxHosts {
		return nil, control.Errorf(control.Usage, "--hosts kubernetes: %s is %q, expected the number of pods, 1 to %d", PodCount, os.Getenv(PodCount), MaxHosts)
	}
	p := &Pod{address: os.Getenv(PodHead)}
	p.Index, err = strconv.Atoi(os.Getenv(PodIndex))
	if err != nil || p.Index < 0 || p.Index >= count {
		return nil, control.Errorf(control.Usage, "--hosts kubernetes: %s is %q, expected a number below %s, which is %d: the Job's completions are as many", PodIndex, os.Getenv(PodIndex), PodCount, count)
	}
	_, port, err := net.SplitHostPort(p.address)
	if p.port, _ = strconv.Atoi(port); err != nil || p.port < 1 || p.port > math.MaxUint16 {
		return nil, control.Errorf(control.Usage, "--hosts kubernetes: %s is %q, expected a name and a port such as lab-0.lab:7437", PodHead, p.address)
	}
	for i := range count {
		p.names = append(p.names, os.Getenv(PodJob)+"-"+strconv.Itoa(i))
	}
	p.credentials, err = podCredentials(os.Getenv(PodKey), os.Getenv(PodUID))
	return p, err
}

// podCredentials returns those of a Job, by the file of the key.
func podCredentials(file, uid string) (*Credentials, error) {
	key, err := os.ReadFile(file)
	if err != nil {
		return nil, control.Errorf(control.Usage, "--hosts kubernetes: the key: %v, expected a Secret to be mounted there", err)
	}
	if key = bytes.TrimSpace(key); len(key) < KeySize {
		return nil, control.Errorf(control.Usage, "--hosts kubernetes: %s has a key of %d bytes, expected at least %d, such as those of `openssl rand -base64 %d`", file, len(key), KeySize, KeySize)
	}
	return deriveCredentials(key, uid)
}

// plan is that of the first pod's lab.
func (p *Pod) plan(lab string) plan {
	return plan{
		names: p.names, ports: portRange{p.port, p.port}, credentials: p.credentials, come: podTime,
		commands: []command{localWorker(lab, p.names[p.Index], p.Index)},
	}
}

// BeWorker has this process be the worker of its host, in another pod than the first. It returns only if it fails.
func (p *Pod) BeWorker() error {
	told, err := json.Marshal(assignment{
		Addresses: []string{p.address}, Credentials: p.credentials.String(), Wait: podTime,
		Name: p.names[p.Index], Index: p.Index, Count: len(p.names),
	})
	if err != nil {
		return err
	}
	return Become(string(told))
}
