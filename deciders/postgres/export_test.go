package postgres

// Statements are those that a Decider reads and updates with.
func Statements(table string) (read, update string) {
	d := NewDecider(nil, table, "e", nil)
	return d.b.table.Read, d.b.table.Update
}
