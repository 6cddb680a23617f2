package doctor

import "github.com/c8e606e4/leaderelection/deciders/durability"

// durability passes on what the store says of its settings: which may lose a write that
// it has confirmed.
func (s *session) durability() {
	const check = "the store's durability"
	x, ok := s.Place.(durability.Examiner)
	if !ok {
		s.tell(check, Skip, "leaderelect does not examine the settings of this kind of store", "see what its package's documentation says that it can lose")
		return
	}
	ctx, cancel := s.call()
	defer cancel()
	warnings, err := x.Durability(ctx)
	for _, w := range warnings {
		s.Tell(Finding{Check: check, Verdict: Warn, Detail: w.Detail, Advice: w.Advice, Unsafe: true})
	}
	switch {
	case err != nil:
		s.tell(check, Skip, err.Error(), "see to this by hand: a confirmed write that is lost is two leaders")
	case len(warnings) == 0:
		s.tell(check, OK, "no setting that can be asked for lets a confirmed write be lost", "")
	}
}
