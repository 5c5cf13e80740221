package placement

// passes bounds how often refine goes over a graph. Few are of use.
const passes = 10

// refine moves vertices to the other side, so that the cut weighs less: one by one, the one that gains most first, each
// once in a pass, also where it gains nothing; then it takes back those after the best state.
func (b *bisection) refine(g *Graph, sides, given []int8) {
	weights := weigh(g, sides)
	for range passes {
		p := pass{bisection: b, Graph: g, sides: sides, given: given, weights: weights}
		better := p.run()
		weights = p.weights
		if !better {
			return
		}
	}
}

// A pass is one of refine.
type pass struct {
	*bisection
	*Graph
	sides, given []int8
	weights      [2]int    // of the sides
	gains        [2]*gains // of the vertices of each side that may move
	moved        []bool
}

// run reports whether the sides are better than before.
func (p *pass) run() bool {
	p.gains = [2]*gains{newGains(p.Len()), newGains(p.Len())}
	p.moved = make([]bool, p.Len())
	for v, side := range p.sides {
		if gain, border := p.gain(int32(v)); border || p.weights[side] > p.most[side] {
			p.offer(int32(v), gain)
		}
	}
	excess := p.excess(p.weights)
	var moves []int32
	sum, best, kept, idle, improved := 0, 0, 0, 0, false
	for idle < 200+p.Len()/20 {
		from, ok := p.choose()
		if !ok {
			break
		}
		v, gain := p.gains[from].pop()
		p.move(v)
		moves = append(moves, v)
		sum += gain
		idle++
		if now := p.excess(p.weights); now < excess || now == excess && sum > best {
			best, excess, kept, idle, improved = sum, now, len(moves), 0, true
		}
	}
	for _, v := range moves[kept:] {
		p.turn(v)
	}
	return improved
}

// gain returns by how much less the cut weighs with a vertex on the other side, and whether it has a neighbour there.
func (p *pass) gain(v int32) (gain int, border bool) {
	for _, e := range p.of(v) {
		if p.sides[e.to] != p.sides[v] {
			gain += e.weight
			border = true
		} else {
			gain -= e.weight
		}
	}
	return gain, border
}

// offer has a vertex move in its turn, unless its side is given.
func (p *pass) offer(v int32, gain int) {
	if p.given[v] == free {
		p.gains[p.sides[v]].add(v, gain)
	}
}

// choose returns the side that the next vertex leaves: one that weighs too much, else where more is gained.
func (p *pass) choose() (from int8, ok bool) {
	best := 0
	for side := range int8(2) {
		v, gain, found := p.gains[side].peek()
		if !found {
			continue
		}
		if p.weights[side] > p.most[side] {
			return side, true
		}
		if p.weights[1-side]+p.Graph.weights[v] <= p.most[1-side] && (!ok || gain > best) {
			from, best, ok = side, gain, true
		}
	}
	return from, ok
}

// turn moves a vertex to the other side.
func (p *pass) turn(v int32) {
	side := p.sides[v]
	p.weights[side] -= p.Graph.weights[v]
	p.weights[1-side] += p.Graph.weights[v]
	p.sides[v] = 1 - side
}

// move moves a vertex for this pass, and tells its neighbours.
func (p *pass) move(v int32) {
	p.turn(v)
	p.moved[v] = true
	for _, e := range p.of(v) {
		if p.moved[e.to] {
			continue
		}
		side := p.sides[e.to]
		by := 2 * e.weight
		if side == p.sides[v] {
			by = -by
		}
		if !p.gains[side].change(e.to, by) {
			gain, _ := p.gain(e.to)
			p.offer(e.to, gain)
		}
	}
}
