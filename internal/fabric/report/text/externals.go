package text

import (
	"fmt"
	"io"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/words"
)

// WriteExternals writes for people where the ends of links outside a lab are,
// and how to get there.
func WriteExternals(w io.Writer, externals []report.External) error {
	p := newPage(w)
	writeExternalEnds(p, externals)
	return p.flush()
}

func writeExternalEnds(p *page, externals []report.External) {
	for i := range externals {
		x := &externals[i]
		p.section()
		p.hanging(false, x.Endpoint+": ", fmt.Sprintf("expected to have %s, MTU %d", strings.Join(x.Addresses, ", "), x.MTU))
		if x.Host != "" {
			p.line("  at host      " + x.Host)
		}
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
		story := fmt.Sprintf("%s to the peer, %s from it", words.Count(x.ToPeer), words.Count(x.FromPeer))
		if x.NoPeer > 0 {
			story += fmt.Sprintf(", %s while there was none", words.Count(x.NoPeer))
		}
		if x.Lost > 0 {
			story += fmt.Sprintf(", %s lost", words.Count(x.Lost))
		}
		p.hanging(false, "  so far       ", story)
	}
}
