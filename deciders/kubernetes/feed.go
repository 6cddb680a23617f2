package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
)

// leastLife is for how long a watch must have lived to be taken up again at once, and how
// long ago the Lease must have been read to be read again. API servers end each watch after
// half an hour to an hour.
const leastLife = time.Second

// maxEvent is how many bytes an event of a watch may have. Etcd keeps no object of more
// than 1.5 MiB.
const maxEvent = 2 << 20

// errLeft is that the loop over the feed was left.
var errLeft = errors.New("the loop was left")

// follow returns nil if the loop was left.
func (d *Decider) follow(ctx context.Context, yield func(*leaderelection.RaceEntry) bool) error {
	ctx, cancel := context.WithCancel(ctx) // ends the watch
	defer cancel()
	if err := (&watcher{d: d, yield: yield}).run(ctx); !errors.Is(err, errLeft) {
		return err
	}
	return nil
}

// run reads the Lease, and watches it from there on.
func (w *watcher) run(ctx context.Context) error {
	for {
		read := time.Now()
		s, err := w.d.b.Load(ctx)
		if err != nil {
			return err
		}
		w.seen = 0
		if s.At.lease != nil {
			w.seen = number(s.At.lease.ResourceVersion)
		}
		if err := w.tell(s); err != nil {
			return err
		}
		// From 0 the API server tells of the state in its memory, and of all after it.
		// The version that was read may be older than all that it remembers.
		for w.from = "0"; ; {
			begun := time.Now()
			err := w.watch(ctx)
			if expired(err) && w.from != "0" && time.Since(read) >= leastLife {
				break // what came after w.from is forgotten: read again
			}
			if err == nil && time.Since(begun) < leastLife {
				err = errFeedEnded
			}
			if err != nil {
				return err
			}
		}
	}
}

// watcher is a feed.
type watcher struct {
	d     *Decider
	yield func(*leaderelection.RaceEntry) bool
	from  string // the resourceVersion after which to watch
	seen  uint64 // that of the last state that was told: none is told twice, nor an older one
}

func (w *watcher) tell(s store.Stored[version]) error {
	e, err := w.d.election.Entry(s)
	if err != nil {
		return err
	}
	if !w.yield(e) {
		return errLeft
	}
	return nil
}

// watch follows one watch to its end: nil if the API server has ended it.
func (w *watcher) watch(ctx context.Context) error {
	b := w.d.b
	stream, err := b.client().Get().AbsPath(b.leases()).
		Param("watch", "true").Param("allowWatchBookmarks", "true").
		Param("fieldSelector", "metadata.name="+b.name).Param("resourceVersion", w.from).
		SetHeader("Accept", "application/json").MaxRetries(0).Stream(silent(ctx))
	if b.noted(err) != nil {
		return err
	}
	defer stream.Close()
	limited := &io.LimitedReader{R: stream}
	events := json.NewDecoder(limited)
	for {
		limited.N = maxEvent
		var ev event
		switch err := events.Decode(&ev); {
		case err == io.EOF && limited.N > 0:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF):
			return fmt.Errorf("the watch broke off: %w", io.ErrUnexpectedEOF)
		case errors.As(err, new(*json.SyntaxError)) || errors.As(err, new(*json.UnmarshalTypeError)):
			return fmt.Errorf("%w (%w)", errNotKubernetes, err)
		case err != nil:
			return fmt.Errorf("the watch broke off: %w", err)
		}
		if err := w.take(&ev); err != nil {
			return err
		}
	}
}

// event is one of a watch.
type event struct {
	Type   watch.EventType `json:"type"`
	Object json.RawMessage `json:"object"`
}

// take tells of an event.
func (w *watcher) take(ev *event) error {
	switch ev.Type {
	case watch.Error:
		status := &metav1.Status{}
		if err := json.Unmarshal(ev.Object, status); err != nil || status.Kind != "Status" {
			return errNotKubernetes
		}
		return apierrors.FromObject(status)
	case watch.Bookmark:
		var mark metav1.PartialObjectMetadata
		if err := json.Unmarshal(ev.Object, &mark); err != nil || number(mark.ResourceVersion) == 0 {
			return errNotKubernetes
		}
		w.from = mark.ResourceVersion
		return nil
	case watch.Added, watch.Modified, watch.Deleted:
	default:
		return errNotKubernetes
	}
	l, err := w.d.b.parse(ev.Object)
	if err != nil {
		return err
	}
	w.from = l.ResourceVersion
	at := number(l.ResourceVersion)
	if at <= w.seen {
		return nil
	}
	w.seen = at
	if ev.Type == watch.Deleted {
		return w.tell(store.Stored[version]{None: true})
	}
	s, err := w.d.b.stored(l)
	if err != nil {
		return err
	}
	return w.tell(s)
}
