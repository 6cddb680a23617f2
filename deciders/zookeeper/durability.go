package zookeeper

import (
	"context"
	"fmt"
	"strings"

	"github.com/c8e606e4/leaderelection/deciders/durability"
)

var _ durability.Examiner = (*Decider)(nil)

// configuration is the znode in which an ensemble tells of its servers.
const configuration = "/zookeeper/config"

// Durability implements durability.Examiner. It reads the ensemble's list of servers, which
// everybody may read unless its ACL was changed. It cannot see forceSync=no.
func (d *Decider) Durability(ctx context.Context) ([]durability.Warning, error) {
	err := d.election.Ready(ctx)
	var data []byte
	if err == nil {
		data, err = do(ctx, d.b, func() ([]byte, error) {
			data, _, err := d.b.conn.Get(configuration)
			return data, err
		})
	}
	if err != nil {
		return nil, d.election.Failed(ctx, "examining the ensemble of", fmt.Errorf("reading %s: %w", configuration, err))
	}
	return examine(string(data)), nil
}

// examine says what the number of servers that vote means.
func examine(config string) []durability.Warning {
	voters := 0
	for line := range strings.Lines(config) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if strings.HasPrefix(name, "server.") && !strings.Contains(value, ":observer") {
			voters++
		}
	}
	switch {
	case voters < 2:
		return []durability.Warning{{
			Detail: "there is one server that votes: its disk is the only one that has what was confirmed, and nobody can lead while it is away",
			Advice: "run an ensemble of three",
		}}
	case voters%2 == 0:
		return []durability.Warning{{
			Detail: fmt.Sprintf("there are %d servers that vote, which survive the loss of %d, no more than %d would", voters, voters/2-1, voters-1),
			Advice: fmt.Sprintf("run %d or %d", voters-1, voters+1),
		}}
	}
	return nil
}
