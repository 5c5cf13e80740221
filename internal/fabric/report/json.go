package report

import (
	"encoding/json"
	"io"
)

// WriteJSON writes v, a Run or another value of this package, as one indented
// JSON value.
func WriteJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false) // expectations have < and >
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// WriteJSONLine writes v, a value of this package, as one JSON value on a line.
func WriteJSONLine(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
