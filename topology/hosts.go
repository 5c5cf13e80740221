package topology

// This file is the keys of hosts, which are for labs over several.

// An OnLoss says what becomes of a lab over several hosts when one of them is gone.
type OnLoss string

// The values of OnLoss.
const (
	EndOnLoss      OnLoss = "end"      // the lab ends at all hosts
	ContinueOnLoss OnLoss = "continue" // it goes on without the nodes of that host
)

// A hostsMap has the key `hosts` of a file.
type hostsMap struct{ onLoss OnLoss }

// hostsTable is made whenever a file has hosts, which is seldom.
func hostsTable() *keyTable[hostsMap] {
	return &keyTable[hostsMap]{
		what: "hosts", noun: "hosts", def: "hosts",
		keys: []key[hostsMap]{
			one("on_loss", fewWords(EndOnLoss, ContinueOnLoss), func(m *hostsMap) *OnLoss { return &m.onLoss },
				"`end`: the lab ends at all hosts when one is gone; `continue`: it goes on without the nodes of that host").orElse("`end`"),
		},
	}
}

// hostsForm returns the form that gives a topology what of the map is not the default.
func hostsForm() form[OnLoss] {
	return mapOf(hostsTable, func(m *mapping[hostsMap]) OnLoss {
		if m.is.onLoss == EndOnLoss {
			return ""
		}
		return m.is.onLoss
	})
}

// Continues reports whether a lab over several hosts goes on without one that is gone.
func (t *Topology) Continues() bool { return t.OnLoss == ContinueOnLoss }
