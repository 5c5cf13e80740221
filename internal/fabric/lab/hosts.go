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

// writeHosts writes the file that stands for /etc/hosts in all nodes, into the memory that covers the state directory. It
// is one file: commands that are started later and those that run see what is written there again. The host's own file
// has no part in it, and where there is none no file can stand for it.
func (d *nodeDriver) writeHosts(stateDir string, topo *topology.Topology) error {
	if _, err := os.Stat("/etc/hosts"); errors.Is(err, fs.ErrNotExist) {
		log.Print("names of nodes do not resolve in nodes: this machine has no /etc/hosts")
		return nil
	}
	d.hosts = filepath.Join(stateDir, "hosts")
	return d.renewHosts(func() *topology.Topology { return topo })
}

// renewHosts writes the file again for the lab's present topology, if there is one.
func (d *nodeDriver) renewHosts(present func() *topology.Topology) error {
	if d.hosts == "" {
		return nil
	}
	d.naming.Lock()
	defer d.naming.Unlock()
	if err := overwrite(d.hosts, hostsFor(present())); err != nil {
		return fmt.Errorf("names of nodes: %w", err)
	}
	return nil
}

// overwrite has a file contain data without being empty in between. It stays the same
// file, as it is mounted in nodes.
func overwrite(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Truncate(int64(len(data)))
	}
	return errors.Join(err, f.Close())
}

// hostsFor returns the names of a lab's nodes as hosts(5) has them. Of a node with several
// addresses, resolvers find out which are in reach (RFC 6724, section 6, rule 1).
func hostsFor(topo *topology.Topology) []byte {
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
