package core

// actions are the actions that a lab has asked for. A number is never used twice.
type actions struct {
	last    int
	queue   []numbered // that Next has still to return, oldest first
	results map[int]func(Done)
}

// A numbered is an action with its number.
type numbered struct {
	number int
	action Action
}

// add queues an action. then receives its result; it may be nil.
func (q *actions) add(a Action, then func(Done)) {
	q.last++
	if then != nil {
		q.results[q.last] = then
	}
	q.queue = append(q.queue, numbered{q.last, a})
}

// next removes the oldest action from the queue and returns it; false if the queue is empty.
func (q *actions) next() (first numbered, ok bool) {
	if len(q.queue) == 0 {
		return numbered{}, false
	}
	first, q.queue = q.queue[0], q.queue[1:]
	return first, true
}

// done passes a result on to the function that waits for it. It ignores a second result of an action.
func (q *actions) done(d Done) {
	if then := q.results[d.Number]; then != nil {
		delete(q.results, d.Number)
		then(d)
	}
}
