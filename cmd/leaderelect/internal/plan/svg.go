package plan

import (
	"fmt"
	"html"
	"strings"
	"time"
)

// SVG draws the typical crash: the leader's views, and who leads when.
func (c Choice) SVG(r *Result) string {
	t := r.Typical
	begin := max(t.Fault-3*(c.Term-c.Skew)/2, 0)
	end := t.Elected + (t.Elected-begin)/10
	const left, width, height = 120, 760, 250
	x := func(at time.Duration) float64 {
		return left + width*float64(min(max(at, begin), end)-begin)/float64(end-begin)
	}
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="system-ui, sans-serif" font-size="12">`, left+width+40, height)
	p(`<style>svg{background:#fff;color:#1c1d1f}text{fill:currentColor}.quiet{opacity:.65}@media(prefers-color-scheme:dark){svg{background:#15171a;color:#e9eaec}}</style>`)
	p(`<title>%s</title>`, html.EscapeString(fmt.Sprintf("Fail-over after a crash, term %v, skew %v, on %s", c.Term, c.Skew, c.Store.Name)))
	p(`<text x="%d" y="24" font-size="15">A crash of median length: %v without a leader (term %v, skew %v, %s)</text>`, 16,
		(t.Elected - t.Fault).Round(10*time.Millisecond), c.Term, c.Skew, html.EscapeString(c.Store.Name))
	bar := func(y int, from, to time.Duration, colour, title string) {
		p(`<rect x="%.1f" y="%d" width="%.1f" height="22" fill="%s"><title>%s</title></rect>`, x(from), y, x(to)-x(from), colour, html.EscapeString(title))
	}
	row := func(y int, name string) { p(`<text x="16" y="%d">%s</text>`, y+16, name) }
	row(50, "old leader")
	row(82, "its view")
	row(114, "its term")
	row(146, "next leader")
	from := max(begin, t.Extended[0]) // it may have been elected not long ago
	bar(50, from, t.Fault, "#3a86c8", "leads")
	bar(82, from, t.Fault, "#7fb2dd", "until it is extended")
	for _, at := range t.Extended {
		if at < begin || at > t.Fault {
			continue
		}
		p(`<circle cx="%.1f" cy="93" r="4" fill="#3a86c8"><title>an extension is confirmed</title></circle>`, x(at))
	}
	view := t.Ends[len(t.Ends)-1]
	bar(82, t.Fault, view, "#cfdbe6", "still runs: nobody else may act")
	bar(114, from, t.Expiry, "#dcdde0", "the lease, as the record says")
	bar(146, t.Elected, end, "#35a78a", "leads")
	line := func(at time.Duration, y int, label string) {
		p(`<line x1="%.1f" y1="44" x2="%.1f" y2="%d" stroke="currentColor" stroke-dasharray="3 3"/>`, x(at), x(at), y)
		anchor := "start"
		if x(at) > left+width*0.7 {
			anchor = "end"
		}
		p(`<text x="%.1f" y="%d" text-anchor="%s" class="quiet">%s</text>`, x(at), y+12, anchor, html.EscapeString(label))
	}
	line(t.Fault, 172, "the leader dies")
	line(view, 188, fmt.Sprintf("its view ends, +%v", (view-t.Fault).Round(10*time.Millisecond)))
	line(t.Expiry, 204, fmt.Sprintf("its term ends, +%v", (t.Expiry-t.Fault).Round(10*time.Millisecond)))
	line(t.Elected, 220, fmt.Sprintf("elected, +%v", (t.Elected-t.Fault).Round(10*time.Millisecond)))
	p(`</svg>`)
	return b.String()
}
