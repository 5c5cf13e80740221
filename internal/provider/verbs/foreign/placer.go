package foreign

import "golang.org/x/sys/unix"

// mostPlaced bounds the pieces that are put off.
const mostPlaced = 64

// A placer copies data to other processes, for one queue pair (rc.Config). It puts copies off until there are mostPlaced,
// or until placed is called.
type placer struct {
	space  *Space
	pid    int // of all that is put off
	local  [][]byte
	remote []unix.RemoteIovec
	vector vector
	failed bool // some memory was not there, which has not been reported
}

// NewPlacer makes the functions of rc.Config for a queue pair, under whose lock they are called.
func (s *Space) NewPlacer() (place func(ranges [][]byte, data []byte) (ok bool), placed func() (ok bool)) {
	p := &placer{space: s}
	return p.place, p.placed
}

// place copies data to ranges, as rc.Scatter does; false if some are not there, or were not when it was put off. Data
// for a process that has ended with all others is lost, as its acknowledgement will be.
func (p *placer) place(ranges [][]byte, data []byte) (ok bool) {
	if p.failed {
		return p.placed()
	}
	p.space.mu.RLock()
	defer p.space.mu.RUnlock()
	for _, r := range ranges {
		part := data[:min(len(r), len(data))]
		if len(part) == 0 {
			continue
		}
		data = data[len(part):]
		m := p.space.find(r)
		if m == nil {
			copy(r, part)
			continue
		}
		if m.pid != p.pid || len(p.local) == mostPlaced {
			p.write()
		}
		p.pid = m.pid
		p.local, p.remote = append(p.local, part), append(p.remote, m.real(r[:len(part)]))
	}
	return true
}

// placed makes the copies that are put off, and reports whether the memory of all was there since it was last called.
func (p *placer) placed() (ok bool) {
	p.write()
	ok = !p.failed
	p.failed = false
	return ok
}

func (p *placer) write() {
	if len(p.local) > 0 {
		if err := p.vector.write(p.pid, p.local, p.remote); err != nil {
			p.failed = !p.space.tellEnded(p.pid, err)
		}
	}
	clear(p.local) // lets go of the data
	p.local, p.remote = p.local[:0], p.remote[:0]
}
