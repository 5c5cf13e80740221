package core

import "github.com/ndklab/ndklab/topology"

// A bridge is a switch.
type bridge struct {
	lab  *Lab
	spec *topology.Node
	made bool
	busy bool        // an action is under way
	gone func(error) // has it be removed, and is called when it has been; nil: it stays
}

// advance makes a switch that is to be there, or removes one that is to go, whose links have gone.
func (b *bridge) advance() {
	switch {
	case b.busy:
		return
	case b.gone != nil && !b.made:
		b.gone(nil)
		return
	case b.gone == nil && b.made:
		return
	}
	b.busy = true
	if b.gone != nil {
		b.lab.do(RemoveSwitch{b.spec}, func(d Done) {
			b.busy, b.made = false, d.Err != nil
			b.gone(d.Err)
		})
		return
	}
	b.lab.do(MakeSwitch{b.spec}, func(d Done) {
		b.busy, b.made = false, d.Err == nil
		switch {
		case d.Err != nil && b.lab.building != nil:
			b.lab.buildFailed("make the switches", d.Err)
		case d.Err != nil:
			b.lab.applyFailed(d.Err) // the next one tries again
		case b.gone != nil:
			b.advance()
		default:
			for _, i := range b.spec.Interfaces {
				b.lab.links[i.Link].schedule()
			}
		}
	})
}
