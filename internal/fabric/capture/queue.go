package capture

// slabSize is the size of the memory that is taken at once for packets that wait,
// bytes.
const slabSize = 1 << 20

// A queue is the packets of a source that wait to be written, in the order of their
// stamps. They came about in that order: what is sent and what is received on several
// processors overtakes one another between stamp and socket. It takes its memory in slabs, which are used again.
type queue struct {
	packets []*held // from head on
	head    int
	bytes   int // of data

	slab  *slab // where data is put at present
	slabs []*slab
	spare []*held
}

// A slab is memory that packets share.
type slab struct {
	bytes []byte
	live  int // packets in it
}

// add puts a packet with a copy of data behind those that are not younger.
func (q *queue) add(data []byte, stamp int64) *held {
	h := new(held)
	if n := len(q.spare); n > 0 {
		h, q.spare = q.spare[n-1], q.spare[:n-1]
	}
	if q.slab == nil || len(q.slab.bytes)+len(data) > slabSize {
		q.slab = q.fresh()
	}
	begin := len(q.slab.bytes)
	q.slab.bytes = append(q.slab.bytes, data...)
	q.slab.live++
	*h = held{stamp: stamp, data: q.slab.bytes[begin:], slab: q.slab}
	q.bytes += len(data)

	if q.head > len(q.packets)/2 && len(q.packets) == cap(q.packets) {
		q.packets = q.packets[:copy(q.packets, q.packets[q.head:])]
		q.head = 0
	}
	q.packets = append(q.packets, h)
	for i := len(q.packets) - 1; i > q.head && q.packets[i-1].stamp > stamp; i-- {
		q.packets[i-1], q.packets[i] = q.packets[i], q.packets[i-1]
	}
	return h
}

// fresh is an empty slab. The one before may have become empty, too.
func (q *queue) fresh() *slab {
	if q.slab != nil && q.slab.live == 0 {
		q.slab.bytes = q.slab.bytes[:0]
		return q.slab
	}
	if n := len(q.slabs); n > 0 {
		s := q.slabs[n-1]
		q.slabs = q.slabs[:n-1]
		return s
	}
	return &slab{bytes: make([]byte, 0, slabSize)}
}

// first is the oldest packet, or nil.
func (q *queue) first() *held {
	if q.head == len(q.packets) {
		return nil
	}
	return q.packets[q.head]
}

// remove ends the waiting of the oldest packet.
func (q *queue) remove() {
	h := q.packets[q.head]
	q.packets[q.head] = nil
	if q.head++; q.head == len(q.packets) {
		q.packets, q.head = q.packets[:0], 0
	}
	q.bytes -= len(h.data)
	if h.slab.live--; h.slab.live == 0 && h.slab != q.slab {
		h.slab.bytes = h.slab.bytes[:0]
		q.slabs = append(q.slabs, h.slab)
	}
	h.slab, h.data = nil, nil
	q.spare = append(q.spare, h)
}
