package bench

import (
	"fmt"
	"html/template"
	"maps"
	"math"
	"slices"

	"github.com/go-analyze/charts"
)

// Sizes of a chart on the page, in its own units.
const (
	chartWidth  = 760
	chartHeight = 340
	barHeight   = 30
)

// svg draws the curve. A page has it twice, in light and in dark colours.
func (c Curve) svg(dark bool) (template.HTML, error) {
	name := charts.ThemeLight
	if dark {
		name = charts.ThemeDark
	}
	theme := charts.GetTheme(name).WithBackgroundColor(charts.ColorTransparent)
	options := charts.PainterOptions{OutputFormat: charts.ChartOutputSVG, Width: chartWidth, Height: chartHeight}
	draw := c.drawLines
	if c.isBars() {
		options.Height = 60 + barHeight*len(c.Series)
		draw = c.drawBars
	}
	p := charts.NewPainter(options)
	if err := draw(p, theme); err != nil {
		return "", fmt.Errorf("draw %s: %w", c.Name, err)
	}
	text, err := p.Bytes()
	return template.HTML(text), err // made here, of names and numbers of this package
}

func (c Curve) drawBars(p *charts.Painter, theme charts.ColorPalette) error {
	values := make([]float64, len(c.Series))
	names := make([]string, len(c.Series))
	for i, s := range c.Series {
		at := len(c.Series) - 1 - i // the first one on top
		values[at], names[at] = s.Points[0].Y, s.Name
	}
	o := charts.NewBarChartOptionWithData([][]float64{values})
	o.Theme, o.Horizontal = theme, true
	o.CategoryAxis.Labels = names
	o.CategoryAxis.LabelCount = len(names)
	o.ValueAxis = []charts.ValueAxisOption{{ValueFormatter: short}}
	o.ValueFormatter = short
	o.Legend.Show = charts.Ptr(false)
	for i := range o.SeriesList {
		o.SeriesList[i].Label.Show, o.SeriesList[i].Label.ValueFormatter = charts.Ptr(true), short
	}
	return p.BarChart(o)
}

func (c Curve) drawLines(p *charts.Painter, theme charts.ColorPalette) error {
	at := map[float64]bool{}
	for _, s := range c.Series {
		for _, point := range s.Points {
			at[point.X] = true
		}
	}
	xs := slices.Sorted(maps.Keys(at))
	labels := make([]string, len(xs))
	for i, x := range xs {
		labels[i] = short(x)
	}
	values, names := make([][]float64, len(c.Series)), make([]string, len(c.Series))
	for i, s := range c.Series {
		names[i], values[i] = s.Name, make([]float64, len(xs))
		for j := range xs {
			values[i][j] = charts.GetNullValue()
		}
		for _, point := range s.Points {
			if y, ok := c.onAxis(point.Y); ok {
				values[i][slices.Index(xs, point.X)] = y
			}
		}
	}
	o := charts.NewLineChartOptionWithData(values)
	o.Theme = theme
	o.XAxis.Labels, o.XAxis.Title, o.XAxis.LabelCount = labels, c.X, len(labels)
	o.Legend.SeriesNames = names
	axis := charts.YAxisOption{Title: c.Y, ValueFormatter: short}
	if c.LogY {
		axis.ValueFormatter = func(v float64) string { return short(math.Pow(10, v)) }
	} else {
		axis.Min = charts.Ptr(0.0)
	}
	o.YAxis = []charts.YAxisOption{axis}
	return p.LineChart(o)
}

// onAxis is where a value is on the vertical axis; a logarithm has no zero.
func (c Curve) onAxis(y float64) (float64, bool) {
	if !c.LogY {
		return y, true
	}
	return math.Log10(y), y > 0
}
