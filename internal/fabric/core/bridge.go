package core

import "github.com/ndklab/ndklab/topology"

// A bridge is a switch.
type bridge struct {
	lab       *Lab
	spec      *topology.Node
	made      bool
	busy      bool        // an action is under way
	onRemoved func(error) // is called when the switch has been removed, or could not be; nil: it is not to be removed
}

// advance makes the switch if it is to be there, or removes it, whose links have gone.
func (b *bridge) advance() {
	switch {
	case b.busy:
	case b.onRemoved != nil && !b.made:
		b.onRemoved(nil)
	case b.onRemoved != nil:
		b.busy = true
		b.lab.do(RemoveSwitch{b.spec}, func(d Done) {
			b.busy, b.made = false, d.Err != nil
			b.onRemoved(d.Err)
		})
	case !b.made:
		b.busy = true
		b.lab.do(MakeSwitch{b.spec}, func(d Done) { b.makingDone(d.Err) })
	}
}

// makingDone takes the result of MakeSwitch.
func (b *bridge) makingDone(err error) {
	b.busy, b.made = false, err == nil
	switch l := b.lab; {
	case err != nil && l.building != nil:
		l.building.fail("make the switches", err)
	case err != nil:
		l.applying.fail(err) // the next one tries again
	case b.onRemoved != nil:
		b.advance()
	default:
		for _, i := range b.spec.Interfaces {
			l.links[i.Link].schedule()
		}
	}
}
