// Package durability is how a store says what in its settings may lose a write that it
// has confirmed. A confirmed write that is lost is two leaders, for up to a term:
//
//	warnings, err := decider.Durability(ctx)
//
// The command leaderelect doctor asks each store that is an Examiner.
package durability

import "context"

// Warning is one setting that may lose a confirmed write, or may keep all from writing.
type Warning struct {
	Detail string // the setting, its value, and what may happen
	Advice string // what to set
}

// String is both, on one line.
func (w Warning) String() string { return w.Detail + ": " + w.Advice }

// Examiner is a leaderelection.RaceDecider that can ask its store for such settings.
type Examiner interface {
	// Durability asks the store, and writes nothing. No warning and no error mean
	// that all is well with what can be asked for. The error says what could not be
	// examined, as where a managed service refuses the question. The warnings hold
	// with an error, too.
	Durability(ctx context.Context) ([]Warning, error)
}
