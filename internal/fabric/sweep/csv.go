package sweep

import (
	"encoding/csv"
	"io"
	"strconv"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/report"
)

// WriteCSV writes the runs of a finished sweep as RFC 4180 has it: one row for each, with its number,
// the varied values, the repeat, the seed, the result and the figures. Numbers are in base units,
// which the header has; what was not measured is empty.
func WriteCSV(w io.Writer, s *report.Sweep) error {
	out := csv.NewWriter(w)
	out.UseCRLF = true
	scales := make([]*Scale, len(s.Vary))
	header := []string{"run"}
	for i, axis := range s.Vary {
		name := axis.Path
		if scale, ok := ScaleOf(axis); ok {
			scales[i] = &scale
			if scale.Unit != "" {
				name += "_" + strings.ReplaceAll(scale.Unit, "/", "_per_")
			}
		}
		header = append(header, harmless(name))
	}
	header = append(header, "repeat", "seed", "result", "error")
	for _, f := range s.Figures {
		header = append(header, harmless(f.Name))
	}
	rows := [][]string{header}
	for i := range s.Runs {
		r := &s.Runs[i]
		row := []string{strconv.Itoa(r.Number)}
		for j, value := range r.Values {
			if scale := scales[j]; scale != nil {
				value = decimal(scale.Numbers[indexOf(s.Vary[j].Values, value)])
			}
			row = append(row, harmless(value))
		}
		row = append(row, strconv.Itoa(r.Repeat), strconv.FormatUint(r.Seed, 10), r.Result, harmless(r.Error))
		for _, f := range s.Figures {
			cell := ""
			if value, has := r.Figures[f.Name]; has {
				cell = decimal(value)
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	return out.WriteAll(rows)
}

func indexOf(values []string, value string) int {
	for i, v := range values {
		if v == value {
			return i
		}
	}
	return -1
}

// decimal writes a number with as many digits as it takes.
func decimal(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }

// harmless returns a text that no spreadsheet takes for a formula: one that begins like a formula
// gets an apostrophe in front, by which spreadsheets know text (OWASP, CSV injection). A number is
// none.
func harmless(text string) string {
	if text == "" || !strings.ContainsRune("=+-@\t\r", rune(text[0])) {
		return text
	}
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return text
	}
	return "'" + text
}
