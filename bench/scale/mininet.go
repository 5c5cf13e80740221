package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// mininetScript makes a ring of Mininet's bare hosts, which have a shell each and
// nothing of RDMA, and says how long it took to come up and go down.
const mininetScript = `
import json, sys, time
from mininet.net import Mininet
from mininet.log import setLogLevel
setLogLevel('error')
n = int(sys.argv[1])
t = time.time()
net = Mininet(controller=None, waitConnected=False)
hosts = [net.addHost('h%d' % (i + 1)) for i in range(n)]
for i in range(n):
    net.addLink(hosts[i], hosts[(i + 1) % n])
net.start()
up = time.time() - t
t = time.time()
net.stop()
print(json.dumps({'up_seconds': up, 'down_seconds': time.time() - t}))
`

// A Peer holds the times that Mininet takes for a ring of that size.
type Peer struct {
	Nodes int     `json:"nodes"`
	Up    float64 `json:"up_seconds"`
	Down  float64 `json:"down_seconds"`
}

// lacksMininet returns why Mininet cannot be measured; "" if it can.
func lacksMininet() string {
	if _, err := exec.LookPath("mn"); err != nil {
		return "the command mn is not on PATH"
	}
	if os.Geteuid() != 0 {
		return "it needs root"
	}
	return ""
}

// interpreter returns the Python that has Mininet's modules: the one that mn begins with.
func interpreter() (string, error) {
	mn, err := exec.LookPath("mn")
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(mn)
	if err != nil {
		return "", err
	}
	first, _, _ := strings.Cut(string(text), "\n")
	path, ok := strings.CutPrefix(first, "#!")
	if words := strings.Fields(path); ok && len(words) > 0 {
		return words[len(words)-1], nil
	}
	return "", fmt.Errorf("%s is no script", mn)
}

// mininet measures it.
func mininet(ctx context.Context, n int) (Peer, error) {
	p := Peer{Nodes: n}
	python, err := interpreter()
	if err != nil {
		return p, fmt.Errorf("mininet: %w", err)
	}
	cmd := exec.CommandContext(ctx, python, "-c", mininetScript, strconv.Itoa(n))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return p, fmt.Errorf("mininet, %d hosts: %w", n, err)
	}
	if err := json.Unmarshal(out, &p); err != nil {
		return p, fmt.Errorf("mininet, %d hosts: %w: %s", n, err, out)
	}
	return p, nil
}
