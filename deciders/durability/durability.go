// Package durability lets a store say which of its settings may lose a confirmed write. If a
// confirmed write is lost, two may lead for up to a term.
//
//	warnings, err := decider.Durability(ctx)
//
// The command leaderelect doctor asks each store that is an Examiner.
package durability

import "context"

// Warning is one setting that may lose a confirmed write, or may prevent all writes.
type Warning struct {
	Detail string // the setting, its value, and what may happen
	Advice string // what to set
}

// String is both, on one line.
func (w Warning) String() string { return w.Detail + ": " + w.Advice }

// Examiner is a leaderelection.RaceDecider that can ask its store for such settings.
type Examiner interface {
	// Durability asks the store, and writes nothing. No warning and no error mean that all is
	// well with what it can ask for. The error says what it could not examine, for example
	// because a managed service refuses the question. The warnings hold even with an error.
	Durability(ctx context.Context) ([]Warning, error)
}
