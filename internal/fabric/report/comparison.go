package report

// A Comparison lays two runs, or two sweeps, side by side.
type Comparison struct {
	A string `json:"a"` // file or folder
	B string `json:"b"`
	// Same: no figure differs.
	Same bool `json:"same"`
	// Threshold is the least change that is one, as a fraction, and Significance the p-value below which
	// repeats differ by more than chance.
	Threshold    float64 `json:"threshold"`
	Significance float64 `json:"significance"`
	// Unlike says in what the two are not runs of the same thing, where that was asked to be compared.
	Unlike string           `json:"unlike,omitempty"`
	Rows   []ComparedFigure `json:"figures"`
}

// A ComparedFigure is a figure of both. Values are those of the point of a sweep.
type ComparedFigure struct {
	Values []string `json:"values,omitempty"`
	Name   string   `json:"name"`
	Unit   string   `json:"unit"`
	A      *Spread  `json:"a"` // null: it was not measured
	B      *Spread  `json:"b"`
	Change *float64 `json:"change"` // from A's median to B's, as a fraction of A's; null: A's is 0
	P      *float64 `json:"p"`      // of the Mann-Whitney U test; null: there are too few repeats for one
	Differ bool     `json:"differ"`
}
