package text

import (
	"fmt"
	"io"

	"github.com/ndklab/ndklab/internal/fabric/event"
)

// WriteEvent writes an event as a line for people, or as several on a terminal that is
// too narrow for it.
func WriteEvent(w io.Writer, e *event.Event) error {
	lead := fmt.Sprintf("%s  %s  %-17s  ", e.Time.Local().Format("2006-01-02 15:04:05.000"), e.Lab, e.Kind)
	_, err := io.WriteString(w, Hang(w, lead, e.Text))
	return err
}
