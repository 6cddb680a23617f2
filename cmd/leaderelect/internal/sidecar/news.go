package sidecar

// Told is an event with its number, for those who come back.
type Told[E any] struct {
	ID    uint64
	Event E
}

// news are the events of a hub, which locks them.
type news[E any] struct {
	most    int // are remembered
	events  []Told[E]
	last    uint64        // the newest one's number
	changed chan struct{} // closed by the next one
}

func newNews[E any](most int) news[E] { return news[E]{most: most, changed: make(chan struct{})} }

// add remembers events, and wakes who waits for one.
func (n *news[E]) add(events ...E) {
	for _, e := range events {
		n.last++
		n.events = append(n.events, Told[E]{n.last, e})
	}
	n.events = n.events[max(0, len(n.events)-n.most):]
	close(n.changed)
	n.changed = make(chan struct{})
}

// after are the events after the one numbered last (those remembered), the number of the
// newest, and what the next one closes.
func (n *news[E]) after(last uint64) (told []Told[E], newest uint64, changed <-chan struct{}) {
	for _, e := range n.events {
		if e.ID > last {
			told = append(told, e)
		}
	}
	return told, n.last, n.changed
}
