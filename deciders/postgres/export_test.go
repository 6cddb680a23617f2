package postgres

import "context"

// Statements are those that a Decider reads and updates with.
func (d *Decider) Statements(ctx context.Context) (read, update string, err error) {
	at, err := d.b.table.Find(ctx)
	if err != nil {
		return "", "", err
	}
	return at.Read, at.Update, nil
}

// Quorum is quorum.
var Quorum = quorum
