package placement

// gains is a heap of vertices, the one that gains most first; of those that gain the same, the one with the
// lowest number.
type gains struct {
	heap []vertexGain
	at   []int32 // of a vertex: one more than its index in the heap, or 0
}

type vertexGain struct {
	v    int32
	gain int
}

func newGains(vertices int) *gains { return &gains{at: make([]int32, vertices)} }

func (q *gains) len() int { return len(q.heap) }

// peek returns the first.
func (q *gains) peek() (v int32, gain int, ok bool) {
	if len(q.heap) == 0 {
		return 0, 0, false
	}
	return q.heap[0].v, q.heap[0].gain, true
}

// pop takes the first away, of which there is one.
func (q *gains) pop() (v int32, gain int) {
	first := q.heap[0]
	last := len(q.heap) - 1
	q.swap(0, last)
	q.heap = q.heap[:last]
	q.at[first.v] = 0
	q.down(0)
	return first.v, first.gain
}

// add adds to the gain of a vertex, which may be new.
func (q *gains) add(v int32, gain int) {
	if q.change(v, gain) {
		return
	}
	q.heap = append(q.heap, vertexGain{v, gain})
	q.at[v] = int32(len(q.heap))
	q.up(len(q.heap) - 1)
}

// change adds to the gain of a vertex, and reports whether it is there.
func (q *gains) change(v int32, by int) bool {
	i := int(q.at[v]) - 1
	if i < 0 {
		return false
	}
	q.heap[i].gain += by
	if by > 0 {
		q.up(i)
	} else {
		q.down(i)
	}
	return true
}

func (q *gains) before(i, j int) bool {
	a, b := q.heap[i], q.heap[j]
	return a.gain > b.gain || a.gain == b.gain && a.v < b.v
}

func (q *gains) swap(i, j int) {
	q.heap[i], q.heap[j] = q.heap[j], q.heap[i]
	q.at[q.heap[i].v], q.at[q.heap[j].v] = int32(i+1), int32(j+1)
}

func (q *gains) up(i int) {
	for i > 0 && q.before(i, (i-1)/2) {
		q.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
}

func (q *gains) down(i int) {
	for {
		first := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(q.heap); child++ {
			if q.before(child, first) {
				first = child
			}
		}
		if first == i {
			return
		}
		q.swap(i, first)
		i = first
	}
}
