package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"path/filepath"

	"github.com/ndklab/ndklab/topology"
)

// writeHosts writes the file that stands for /etc/hosts in all nodes. It is one file in
// the memory that covers the state directory: commands that are started later and
// those that run see what is written there again. The host's own file has no part in
// it, and where there is none no file can stand for it.
func (s *Supervisor) writeHosts() error {
	if _, err := os.Stat("/etc/hosts"); errors.Is(err, fs.ErrNotExist) {
		log.Print("names of nodes do not resolve in nodes: this machine has no /etc/hosts")
		return nil
	}
	s.hosts = filepath.Join(s.place.dir, "hosts")
	return s.renewHosts()
}

// renewHosts writes the file again for a topology that has changed, if there is one.
func (s *Supervisor) renewHosts() error {
	if s.hosts == "" {
		return nil
	}
	if err := os.WriteFile(s.hosts, hosts(s.topo), 0o644); err != nil {
		return fmt.Errorf("names of nodes: %w", err)
	}
	return nil
}

// hosts is the names of a lab's nodes as hosts(5) has them. Of a node with several
// addresses, resolvers find out which are in reach (RFC 6724, section 6, rule 1).
func hosts(topo *topology.Topology) []byte {
	b := []byte("127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n")
	for _, n := range topo.Nodes {
		for _, i := range n.Interfaces {
			for _, a := range i.Addresses {
				b = append(a.Addr().AppendTo(b), ' ')
				b = append(append(b, n.Name...), '\n')
			}
		}
	}
	return b
}
