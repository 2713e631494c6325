package lab

import (
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// The picture of a scenario: one panel for each runner, in CSS pixels.
const (
	picWidth    = 960
	picLeft     = 70
	picRight    = 20
	panelHeight = 170
	curveTop    = 34
	curveHeight = 84
	bandTop     = curveTop + curveHeight + 6 // the link in use
	bandHeight  = 12
	stallTop    = bandTop + bandHeight + 4
	stallHeight = 8
	picPoints   = 300 // of a curve
)

// Colours of apps and of links, told apart also by who sees no red or green.
var (
	appColours  = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00"}
	linkColours = []string{"#a6cee3", "#fdbf6f", "#cab2d6", "#b2df8a"}
)

// panel is one run in a picture.
type panel struct {
	w    io.Writer
	t    Timeline
	top  int
	most float64 // of all curves, bits a second
}

// writePicture draws the runs of one scenario below each other.
func writePicture(w io.Writer, list []*Result) error {
	var b strings.Builder
	legend := legendOf(list)
	height := len(list)*panelHeight + 16*len(legend) + 20
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="11">`+"\n",
		picWidth, height, picWidth, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", picWidth, height)
	for i, r := range list {
		p := &panel{w: &b, t: r.Timeline, top: i * panelHeight}
		p.draw(r, legend)
	}
	for i, l := range legend {
		fmt.Fprintf(&b, `<text x="%d" y="%d">%d: %s</text>`+"\n", picLeft, len(list)*panelHeight+16*i+12, i+1, html.EscapeString(l))
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// legendOf lists the different events; a mark shows its number.
func legendOf(list []*Result) (legend []string) {
	for _, r := range list {
		for _, e := range r.Timeline.Events {
			if !slices.Contains(legend, e.Text) {
				legend = append(legend, e.Text)
			}
		}
	}
	return legend
}

func (p *panel) x(at time.Duration) float64 {
	return picLeft + float64(at)/float64(p.t.End)*(picWidth-picLeft-picRight)
}

func (p *panel) draw(r *Result, legend []string) {
	p.scale()
	fmt.Fprintf(p.w, `<text x="%d" y="%d" font-weight="bold">%s</text>`+"\n", 8, p.top+14, html.EscapeString(r.who()))
	fmt.Fprintf(p.w, `<text x="8" y="%d">%s/s</text><text x="8" y="%d">0</text>`+"\n", p.top+curveTop+10, rateText(p.most), p.top+curveTop+curveHeight)
	fmt.Fprintf(p.w, `<rect x="%d" y="%d" width="%d" height="%d" fill="none" stroke="#ccc"/>`+"\n",
		picLeft, p.top+curveTop, picWidth-picLeft-picRight, curveHeight)
	fmt.Fprintf(p.w, `<text x="8" y="%d">link</text><text x="8" y="%d">stalls</text>`+"\n", p.top+bandTop+10, p.top+stallTop+8)
	p.events(legend)
	for i, s := range p.t.Apps {
		p.curve(s, appColours[i%len(appColours)])
	}
	p.band()
	end := -1.0
	for _, s := range p.t.Stalls {
		s.For = min(s.For, p.t.End-s.At) // apps may take longer to end
		if s.For <= 0 || p.x(s.At+s.For) < end+0.5 {
			continue // it would not be seen beside the one before
		}
		end = p.x(s.At + s.For)
		fmt.Fprintf(p.w, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="#c00"><title>%s stood still for %s at %s</title></rect>`+"\n",
			p.x(s.At), p.top+stallTop, max(1, p.x(s.At+s.For)-p.x(s.At)), stallHeight, html.EscapeString(s.Text), short(s.For), short(s.At))
	}
	fmt.Fprintf(p.w, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", picWidth-picRight, p.top+14, html.EscapeString(r.brief()))
	p.names(legend)
	for i := range 5 {
		at := p.t.End * time.Duration(i) / 4
		fmt.Fprintf(p.w, `<text x="%.1f" y="%d" text-anchor="middle" fill="#666">%s</text>`+"\n", p.x(at), p.top+stallTop+stallHeight+12, short(at))
	}
}

// names tells which colour is whose.
func (p *panel) names([]string) {
	x := 250
	say := func(colour, name string) {
		fmt.Fprintf(p.w, `<rect x="%d" y="%d" width="10" height="10" fill="%s"/><text x="%d" y="%d">%s</text>`+"\n",
			x, p.top+5, colour, x+14, p.top+14, html.EscapeString(name))
		x += 24 + 7*len(name)
	}
	for i, s := range p.t.Apps {
		say(appColours[i%len(appColours)], s.Name)
	}
	for i, s := range p.t.Links {
		say(linkColours[i%len(linkColours)], s.Name)
	}
}

func (p *panel) events(legend []string) {
	last, line := map[string]float64{}, map[string]float64{}
	for _, e := range p.t.Events {
		x := p.x(e.At)
		if before, ok := line[e.Text]; ok && x-before < 1 {
			continue // it would not be seen beside the one before
		}
		line[e.Text] = x
		fmt.Fprintf(p.w, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#999" stroke-dasharray="2 2"/>`+"\n",
			x, p.top+curveTop-8, x, p.top+stallTop+stallHeight)
		if before, ok := last[e.Text]; !ok || x-before > 14 {
			fmt.Fprintf(p.w, `<text x="%.1f" y="%d" text-anchor="middle" fill="#666">%d</text>`+"\n",
				x, p.top+curveTop-10, slices.Index(legend, e.Text)+1)
			last[e.Text] = x
		}
	}
}

// points are the bits a second of a series, in at most picPoints means.
func (p *panel) points(s Series) (out []float64) {
	buckets := int(p.t.End / p.t.Bucket)
	per := max(1, (buckets+picPoints-1)/picPoints)
	for i := 0; i < buckets; i += per {
		sum := 0.0
		for j := i; j < min(i+per, len(s.Bytes)); j++ {
			sum += float64(s.Bytes[j])
		}
		out = append(out, sum*8/(float64(per)*p.t.Bucket.Seconds()))
	}
	return out
}

func (p *panel) scale() {
	p.most = 1000
	for _, s := range p.t.Apps {
		p.most = max(p.most, slices.Max(append(p.points(s), 0)))
	}
}

// level is where so many bits a second are drawn.
func (p *panel) level(v float64) int {
	return p.top + curveTop + curveHeight - int(math.Round(v/p.most*curveHeight))
}

func (p *panel) curve(s Series, colour string) {
	pts := p.points(s)
	if len(pts) == 0 || slices.Max(pts) == 0 {
		return
	}
	fmt.Fprintf(p.w, `<polyline fill="none" stroke="%s" stroke-width="1.2" points="`, colour)
	for i, v := range pts {
		if i > 0 && i+1 < len(pts) && p.level(v) == p.level(pts[i-1]) && p.level(v) == p.level(pts[i+1]) {
			continue // on a straight line
		}
		at := p.t.End * time.Duration(2*i+1) / time.Duration(2*len(pts))
		fmt.Fprintf(p.w, "%.1f,%d ", p.x(at), p.level(v))
	}
	fmt.Fprint(p.w, `"/>`+"\n")
}

// band shows which link carried most; where nothing was carried, none.
func (p *panel) band() {
	var links [][]float64
	for _, s := range p.t.Links {
		links = append(links, p.points(s))
	}
	if len(links) == 0 {
		return
	}
	n := len(links[0])
	in := func(i int) int {
		best := -1
		for k := range links {
			if links[k][i] > 0 && (best < 0 || links[k][i] > links[best][i]) {
				best = k
			}
		}
		return best
	}
	for i := 0; i < n; {
		k, j := in(i), i+1
		for j < n && in(j) == k {
			j++
		}
		if k >= 0 {
			from, to := p.x(p.t.End*time.Duration(i)/time.Duration(n)), p.x(p.t.End*time.Duration(j)/time.Duration(n))
			fmt.Fprintf(p.w, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n",
				from, p.top+bandTop, to-from, bandHeight, linkColours[k%len(linkColours)])
		}
		i = j
	}
}

// brief is a run in a line beside its picture.
func (r *Result) brief() string {
	switch {
	case r.Baseline != "" && r.Wrongly > 0:
		return fmt.Sprintf("%d connections gone", r.Wrongly)
	case r.Baseline != "":
		return "longest stall " + short(r.Longest)
	}
	return fmt.Sprintf("lost %d, repeated %d, ended wrongly %d, longest stall %s", r.Lost, r.Repeated, r.Wrongly, short(r.Longest))
}
