package etcd

// Place is where the record is, as errors name it.
func (d *Decider) Place() string { return d.election.Place }
