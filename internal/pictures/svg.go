package pictures

import (
	"fmt"
	"strings"
	"time"
)

// The layout, in pixels.
const (
	left, right  = 170, 20
	perSecond    = 20
	laneHeight   = 46
	top          = 64
	barHeight    = 22
	footerHeight = 46
)

// span is a stretch of time on a lane.
type span struct {
	from, to time.Duration
	class    string // view, margin, wait, overlap
	text     string
}

// mark is an instant on a lane.
type mark struct {
	at   time.Duration
	text string
}

// lane is one line of a picture.
type lane struct {
	name, note string
	spans      []span
	marks      []mark
}

// picture is a time line.
type picture struct {
	title, caption string
	length         time.Duration
	lanes          []lane
}

const style = `text{font:12px sans-serif;fill:#222}.title{font-size:15px;font-weight:bold}.note{fill:#666;font-size:11px}
.view{fill:#2e8b57}.margin{fill:#f2c14e}.wait{fill:#c9d3dc}.overlap{fill:#c0392b}.axis{stroke:#999}.mark{stroke:#222;stroke-width:1.5}.on{fill:#fff}`

// svg draws it. The colours are explained in words beside them, for readers who see none.
func (p picture) svg() string {
	var b strings.Builder
	x := func(d time.Duration) float64 { return left + d.Seconds()*perSecond }
	width := x(p.length) + right
	axis := top + len(p.lanes)*laneHeight
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %d" role="img" aria-label="%s">`+"\n<style>%s</style>\n",
		width, axis+footerHeight, escape(p.title+": "+p.caption), style)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="#fff"/><text class="title" x="10" y="22">%s</text><text class="note" x="10" y="42">%s</text>`+"\n", escape(p.title), escape(p.caption))
	for i, l := range p.lanes {
		y := top + i*laneHeight
		fmt.Fprintf(&b, `<text x="10" y="%d">%s</text><text class="note" x="10" y="%d">%s</text>`+"\n", y+11, escape(l.name), y+26, escape(l.note))
		for _, s := range l.spans {
			fmt.Fprintf(&b, `<rect class="%s" x="%.1f" y="%d" width="%.1f" height="%d"><title>%s, %s to %s</title></rect>`+"\n",
				s.class, x(s.from), y, x(s.to)-x(s.from), barHeight, escape(s.text), seconds(s.from), seconds(s.to))
			if fits := 6.5 * float64(len(s.text)); fits < x(s.to)-x(s.from) {
				class := ""
				if s.class == "view" || s.class == "overlap" {
					class = ` class="on"`
				}
				fmt.Fprintf(&b, `<text%s x="%.1f" y="%d">%s</text>`+"\n", class, x(s.from)+4, y+15, escape(s.text))
			}
		}
		for _, m := range l.marks {
			fmt.Fprintf(&b, `<path class="mark" d="M%.1f %dv%d"/><text class="note" x="%.1f" y="%d">%s</text>`+"\n", x(m.at), y-3, barHeight+6, x(m.at)+2, y+barHeight+12, escape(m.text))
		}
	}
	fmt.Fprintf(&b, `<path class="axis" d="M%d %dH%.1f"/>`+"\n", left, axis, x(p.length))
	for t := time.Duration(0); t <= p.length; t += 5 * time.Second {
		fmt.Fprintf(&b, `<path class="axis" d="M%.1f %dv5"/><text class="note" x="%.1f" y="%d">%s</text>`+"\n", x(t), axis, x(t)-6, axis+18, seconds(t))
	}
	fmt.Fprintf(&b, `<text class="note" x="%d" y="%d">true time. Green: the view is true, and one may act. Yellow: a margin of MaxClockSkew. Grey: waiting. Red: two views at once.</text>`+"\n</svg>\n", left, axis+38)
	return b.String()
}

func seconds(d time.Duration) string {
	return strings.TrimSuffix(fmt.Sprintf("%.1f", d.Seconds()), ".0") + " s"
}

func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;").Replace(s)
}
