package linkem

import "container/heap"

// departures are the lines that have packets on their way, the one whose first
// is due next in front.
type departures []*line

func (d departures) Len() int           { return len(d) }
func (d departures) Less(i, j int) bool { return d[i].release < d[j].release }
func (d departures) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].place, d[j].place = i, j
}

// Push is for package heap.
func (d *departures) Push(x any) {
	n := x.(*line)
	n.place = len(*d)
	*d = append(*d, n)
}

// Pop is for package heap.
func (d *departures) Pop() any {
	last := len(*d) - 1
	n := (*d)[last]
	(*d)[last] = nil
	*d = (*d)[:last]
	n.place = -1
	return n
}

// fix puts a line where its release belongs.
func (d *departures) fix(n *line) {
	if n.place < 0 {
		heap.Push(d, n)
	} else {
		heap.Fix(d, n.place)
	}
}

// remove takes a line out, if it is in.
func (d *departures) remove(n *line) {
	if n.place >= 0 {
		heap.Remove(d, n.place)
	}
}
