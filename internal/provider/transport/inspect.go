package transport

import "github.com/ndklab/ndklab/internal/provider/rc"

// Usage counts what of a device is in use.
type Usage struct {
	Numbers, Held    int   // queue pair numbers, and those that wait for their timewait to be over
	Peers            int   // addresses that a channel is kept for as the one that heard from them last
	Waiting          int   // channels that wait for their peers
	Credit, Unneeded int64 // bytes in all, and those that nobody has
}

// Usage counts what is in use. Tests look for what is left behind.
func (d *Device) Usage() (u Usage) {
	d.table.mu.Lock()
	u.Numbers, u.Held = int(d.table.count), len(d.table.held)
	d.table.mu.Unlock()
	d.paths.mu.Lock()
	for _, p := range d.paths.to {
		if p.heardBy.Load() != nil {
			u.Peers++
		}
	}
	d.paths.mu.Unlock()
	d.Each(func(p *Pair) {
		if c, ok := p.Owner.(*Channel); ok {
			c.Lock()
			defer c.Unlock()
			if c.QP.State() == rc.Ready && c.QP.SendQueue().InFlight > 0 && !c.halted {
				u.Waiting++
			}
		}
	})
	u.Credit, u.Unneeded = d.credit.size, d.credit.free.Load()
	return u
}

// Numbers returns the bounds of the queue pair numbers that the device gives out.
func (d *Device) Numbers() (first, last uint32) { return d.table.first, d.table.last }

// SetNextNumber has the search for a free number begin at n.
func (d *Device) SetNextNumber(n uint32) { d.table.next = n }

// WithoutNumbers calls f while every number is in use.
func (d *Device) WithoutNumbers(f func()) {
	t := &d.table
	count := t.count
	t.count = t.last - t.first + 1
	f()
	t.count = count
}
