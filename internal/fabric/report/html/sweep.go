package html

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/sweep"
)

// WriteSweep writes a finished sweep with its plots. The page runs no script at all.
func WriteSweep(w io.Writer, s *report.Sweep, plots []sweep.Plot) error {
	b := bufio.NewWriter(w)
	_, _ = b.WriteString("<!DOCTYPE html>\n") // errors stay in b
	sweepPage(s, plots).write(b)
	_, _ = b.WriteString("\n")
	return b.Flush()
}

func sweepPage(s *report.Sweep, plots []sweep.Plot) *element {
	const policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
	mode := "in labs"
	if s.Simulated {
		mode = "simulated"
	}
	made := 0
	for i := range s.Runs {
		if s.Runs[i].Result != "" {
			made++
		}
	}
	facts := []string{s.File, "lab " + s.Lab, mode, fmt.Sprintf("%d of %s made", made, plural(len(s.Runs), "run")), "repeats: " + strconv.Itoa(s.Repeat), "seed " + strconv.FormatUint(s.Seed, 10)}
	main := group{varied(s)}
	for begin := 0; begin < len(plots); {
		end := begin
		for end < len(plots) && plots[end].Figure.Workload == plots[begin].Figure.Workload {
			end++
		}
		main = append(main, plotCard(plots[begin:end]))
		begin = end
	}
	main = append(main, points(s), runs(s))
	return el("html", attr("lang", "en"),
		el("head",
			el("meta", attr("charset", "utf-8")),
			el("meta", attr("http-equiv", "Content-Security-Policy"), attr("content", policy)),
			el("meta", attr("name", "viewport"), attr("content", "width=device-width, initial-scale=1")),
			el("meta", attr("name", "color-scheme"), attr("content", "light dark")),
			el("link", attr("rel", "icon"), attr("href", "data:,")), // none is asked for
			el("title", text("ndklab sweep: "+bounded(s.Lab, longName))),
			el("style", verbatim(style))),
		el("body", class("report"),
			el("header", class("top"), el("h1", text("ndklab sweep")), verdict(s.Passed), el("p", class("facts"), list(facts))),
			el("main", main...),
			el("footer", el("p", text("Made by ndklab. Each plot is also a file (SVG) beside this page.")))))
}

// varied returns the axes of a sweep.
func varied(s *report.Sweep) *element {
	rows := group{}
	for _, axis := range s.Vary {
		rows = append(rows, el("dt", el("code", text(bounded(axis.Path, longName)))), el("dd", text(bounded(strings.Join(axis.Values, ", "), longText))))
	}
	return el("section", class("card"), id("varied"), el("h2", text("Varied")), el("dl", rows...))
}

// plotCard returns the plots of a workload, or of the lab.
func plotCard(plots []sweep.Plot) *element {
	title := "Lab"
	if w := plots[0].Figure.Workload; w != "" {
		title = "Workload " + w
	}
	var figures group
	for _, p := range plots {
		figures = append(figures, el("figure", class("plot picture"), verbatim(p.SVG), el("figcaption", el("strong", text(bounded(p.Title, longName))), el("code", text(p.File)))))
	}
	return el("section", class("card"), el("h2", text(bounded(title, longName))), el("div", append(group{class("plots")}, figures...)...))
}

// points returns the table of points with the figures that have plots.
func points(s *report.Sweep) *element {
	t := &table{name: "Points of the sweep", tall: true}
	for _, axis := range s.Vary {
		t.columns = append(t.columns, column{title: bounded(axis.Path, longName)})
	}
	t.columns = append(t.columns, column{title: "passed", number: true})
	var figures []report.Figure
	for _, f := range s.Figures {
		if f.Plotted {
			figures = append(figures, f)
			t.columns = append(t.columns, column{title: bounded(f.Name, longName), number: true})
		}
	}
	for _, p := range s.Points {
		var cells []group
		for _, value := range p.Values {
			cells = append(cells, cell(text(bounded(value, longName))))
		}
		cells = append(cells, cell(text(fmt.Sprintf("%d of %d", p.Passed, p.Runs))))
		for _, f := range figures {
			spread, has := p.Figures[f.Name]
			switch {
			case !has:
				cells = append(cells, cell(text("–")))
			case spread.Min == spread.Max:
				cells = append(cells, cell(text(fmt.Sprintf("%.4g", spread.Median))))
			default:
				cells = append(cells, cell(text(fmt.Sprintf("%.4g", spread.Median)), el("div", class("note"), text(fmt.Sprintf("%.4g to %.4g", spread.Min, spread.Max)))))
			}
		}
		t.add(cells...)
	}
	return el("section", class("card"), id("points"), el("h2", text("Points")), el("p", class("note"), text("Medians over repeats in base units, and the least and largest below them.")), t.element())
}

// runs returns the table of runs.
func runs(s *report.Sweep) *element {
	t := &table{name: "Runs of the sweep", tall: true, columns: []column{{title: "run", number: true}, {title: "result"}, {title: "values"}, {title: "repeat", number: true}, {title: "seed", number: true}, {title: "command that repeats it"}}}
	for i := range s.Runs {
		r := &s.Runs[i]
		result := r.Result
		if result == "" {
			result = "not made"
		}
		outcome := group{text(result)}
		if r.Error != "" {
			outcome = append(outcome, el("div", class("note"), text(bounded(r.Error, longText))))
		}
		t.add(cell(number(r.Number)), outcome, cell(text(bounded(strings.Join(r.Values, ", "), longName))), cell(number(r.Repeat)),
			cell(text(strconv.FormatUint(r.Seed, 10))), cell(el("code", text(bounded(r.Command, longText)))))
	}
	return el("section", class("card"), id("runs"), el("details", el("summary", el("h2", text("Runs"))), t.element()))
}
