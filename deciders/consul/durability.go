package consul

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/c8e606e4/leaderelection/deciders/durability"
)

var _ durability.Examiner = (*Decider)(nil)

// Durability implements durability.Examiner. It asks for the list of servers, which needs no
// permission.
func (d *Decider) Durability(ctx context.Context) ([]durability.Warning, error) {
	var peers []string
	err := d.election.Ready(ctx)
	if err == nil {
		var a *answer
		switch a, err = d.b.call(ctx, http.MethodGet, "/v1/status/peers", url.Values{}, nil); {
		case err != nil:
		case a.status != http.StatusOK:
			err = a.refusal(string(a.body))
		default:
			err = a.decode(&peers)
		}
	}
	if err == nil && len(peers) == 0 {
		err = errNotConsul
	}
	if err != nil {
		return nil, d.election.Failed(ctx, "examining the servers of", err)
	}
	return examine(len(peers)), nil
}

// examine says what the number of servers means.
func examine(servers int) []durability.Warning {
	switch {
	case servers == 1:
		return []durability.Warning{{
			Detail: "there is one server: its disk is the only one that has what was confirmed (in -dev mode, its memory), and nobody can lead while it is away",
			Advice: "run three servers",
		}}
	case servers%2 == 0:
		return []durability.Warning{{
			Detail: fmt.Sprintf("there are %d servers, which survive the loss of %d, no more than %d would", servers, servers/2-1, servers-1),
			Advice: fmt.Sprintf("run %d or %d", servers-1, servers+1),
		}}
	}
	return nil
}
