package report

import (
	"fmt"
	"io"
	"strings"
)

// An External is a link's end outside the lab, in inspect only. Its frames are
// counted that crossed its sockets.
type External struct {
	Endpoint  string   `json:"endpoint"`  // external:NAME
	MTU       int      `json:"mtu"`       // bytes of IP packet
	Addresses []string `json:"addresses"` // that the lab expects there, CIDR form
	// Where interface NAME is: by its name for ip netns, which ordinary users'
	// labs have not, and as a file.
	Namespace     string `json:"namespace,omitempty"`
	NamespacePath string `json:"namespace_path"`
	Socket        string `json:"socket"`      // takes frames for the lab, one a datagram
	PeerSocket    string `json:"peer_socket"` // for who is outside to make: gets frames
	ToPeer        uint64 `json:"to_peer"`     // frames
	FromPeer      uint64 `json:"from_peer"`
	NoPeer        uint64 `json:"no_peer"` // for which there was no peer socket
	Lost          uint64 `json:"lost"`    // to a peer too slow, a frame too long, an interface that was down
}

// WriteExternals writes for people where the ends of links outside a lab are,
// and how to get there.
func WriteExternals(w io.Writer, externals []External) error {
	p := newPage(w)
	p.externals(externals)
	return p.flush()
}

func (p *page) externals(externals []External) {
	for i := range externals {
		x := &externals[i]
		p.section()
		p.hanging(false, x.Endpoint+": ", fmt.Sprintf("expected to have %s, MTU %d", strings.Join(x.Addresses, ", "), x.MTU))
		if x.Namespace != "" {
			p.line("  namespace    " + x.Namespace + " (ip netns exec " + x.Namespace + " COMMAND...)")
		} else {
			// The path leads through the root of a process, /proc/PID/root, whose user
			// namespace owns this one: who is to enter this has to enter that first.
			process, _, _ := strings.Cut(x.NamespacePath, "/root/")
			p.line("  namespace    " + x.NamespacePath)
			p.line("               (nsenter --preserve-credentials -U" + process + "/ns/user -n" + x.NamespacePath + " COMMAND...)")
		}
		// Paths stay whole, as they are to be copied.
		p.line("  frames to    " + x.Socket)
		p.line("  frames from  " + x.PeerSocket + ", once it is there")
		if x.ToPeer+x.FromPeer+x.NoPeer+x.Lost == 0 {
			continue
		}
		story := fmt.Sprintf("%s to the peer, %s from it", count(x.ToPeer), count(x.FromPeer))
		if x.NoPeer > 0 {
			story += fmt.Sprintf(", %s while there was none", count(x.NoPeer))
		}
		if x.Lost > 0 {
			story += fmt.Sprintf(", %s lost", count(x.Lost))
		}
		p.hanging(false, "  so far       ", story)
	}
}
