package core

// A worklist holds the nodes and links of which something has changed since they were last advanced. Each is in it at
// most once.
type worklist struct {
	nodes []*node
	links []*link
}

// advance removes the next node, or else the next link, and advances it. It returns false if there is none.
func (w *worklist) advance() bool {
	switch {
	case len(w.nodes) > 0:
		n := w.nodes[0]
		w.nodes, n.scheduled = w.nodes[1:], false
		n.advance()
	case len(w.links) > 0:
		k := w.links[0]
		w.links, k.scheduled = w.links[1:], false
		k.advance()
	default:
		return false
	}
	return true
}

// schedule adds the node to the lab's worklist.
func (n *node) schedule() {
	if !n.scheduled {
		n.scheduled = true
		n.lab.worklist.nodes = append(n.lab.worklist.nodes, n)
	}
}

// scheduleWithLinks adds the node and its links to the lab's worklist.
func (n *node) scheduleWithLinks() {
	n.schedule()
	for k := range n.links() {
		k.schedule()
	}
}

// schedule adds the link and the nodes at its ends to the lab's worklist.
func (k *link) schedule() {
	if !k.scheduled {
		k.scheduled = true
		k.lab.worklist.links = append(k.lab.worklist.links, k)
	}
	for _, n := range k.nodes {
		if n != nil {
			n.schedule()
		}
	}
}
