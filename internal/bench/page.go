package bench

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
)

//go:embed page.html
var pageText string

// pagePart is one scenario of the page.
type pagePart struct {
	Report
	Plots   []pagePlot
	Figures []named
	Cases   bool // the table needs a column for them
}

type pagePlot struct {
	Name        string
	Light, Dark template.HTML
}

// WriteHTML writes the report as one page that needs nothing from elsewhere.
func (r Report) WriteHTML(w io.Writer) error {
	page, err := template.New("page").Funcs(template.FuncMap{
		"ms":      func(us float64) string { return fmt.Sprintf("%.2f", us/1000) },
		"counts":  counts,
		"whole":   func(v float64) string { return fmt.Sprintf("%.0f", v) },
		"two":     func(v float64) string { return fmt.Sprintf("%.2f", v) },
		"does":    func(way string) string { return Ways[way] },
		"percent": func(v *float64) string { return fmt.Sprintf("%.1f", 100*deref(v)) },
	}).Parse(pageText)
	if err != nil {
		return fmt.Errorf("bench: the page: %w", err)
	}
	parts := r.Reports
	if len(parts) == 0 {
		parts = []Report{r}
	}
	data := struct {
		Report
		Parts []pagePart
		Ways  map[string]string
	}{Report: r, Ways: Ways}
	for _, one := range parts {
		part := pagePart{Report: one, Figures: one.ratios()}
		for _, c := range one.Curves {
			plot := pagePlot{Name: c.Name}
			if plot.Light, err = c.svg(false); err == nil {
				plot.Dark, err = c.svg(true)
			}
			if err != nil {
				return fmt.Errorf("bench: %w", err)
			}
			part.Plots = append(part.Plots, plot)
		}
		for _, c := range one.Competitors {
			part.Cases = part.Cases || c.Case != ""
		}
		data.Parts = append(data.Parts, part)
	}
	return page.Execute(w, data)
}
