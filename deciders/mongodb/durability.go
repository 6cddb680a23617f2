package mongodb

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/c8e606e4/leaderelection/deciders/durability"
)

var _ durability.Examiner = (*Decider)(nil)

// Durability implements durability.Examiner. It asks the server whether it belongs to a replica
// set, and how many members have data. Beyond Permissions it needs the action replSetGetConfig on
// the cluster (role clusterMonitor): only the configuration shows votes, hidden members, and
// members without a journal. If the server refuses, or if it is a mongos, which says nothing of its
// shards, the error says so.
func (d *Decider) Durability(ctx context.Context) ([]durability.Warning, error) {
	const doing = "examining the server of"
	if err := d.election.Ready(ctx); err != nil {
		return nil, d.election.Failed(ctx, doing, err)
	}
	var server hello
	if err := d.b.ask(ctx, "hello", &server); err != nil {
		return nil, d.election.Failed(ctx, doing, err)
	}
	switch {
	case server.Kind == "isdbgrid":
		return nil, d.election.Failed(ctx, doing, errors.New("it is a mongos, which says nothing of its shards: examine the replica set of the shard that has the collection"))
	case server.standalone():
		return []durability.Warning{{
			Detail: "this server is not a member of a replica set: its disk is the only one that has what was confirmed, nobody can lead while it is away, and without change streams candidates poll",
			Advice: "make it a replica set of three members",
		}}, nil
	}
	var answer struct {
		Config setConfig `bson:"config"`
	}
	err := d.b.ask(ctx, "replSetGetConfig", &answer)
	if err == nil && len(answer.Config.Members) == 0 {
		err = errors.New("the answer names no members")
	}
	if err != nil {
		// Not by failed: its advice is about the collection.
		return server.warnings(), fmt.Errorf("leaderelection/mongodb: %s %s: votes, hidden members and writeConcernMajorityJournalDefault are not known without replSetGetConfig (role clusterMonitor): %w", doing, d.election.Place, err)
	}
	return answer.Config.warnings(), nil
}

// ask has the primary run a command that takes no arguments.
func (b *backend) ask(ctx context.Context, command string, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	return b.client.Database("admin").RunCommand(ctx, bson.D{{Key: command, Value: 1}}).Decode(answer)
}

// hello is what a server says of itself to anybody. Hidden members are not among it.
type hello struct {
	Kind     string   `bson:"msg"`
	Set      string   `bson:"setName"`
	Hosts    []string `bson:"hosts"`
	Passives []string `bson:"passives"` // they have data, and never become primary
	Arbiters []string `bson:"arbiters"`
}

// standalone reports whether the server is neither a member of a replica set nor a mongos.
func (h *hello) standalone() bool { return h.Set == "" && h.Kind != "isdbgrid" }

func (h *hello) warnings() []durability.Warning {
	data := len(h.Hosts) + len(h.Passives)
	return copies(data, data+len(h.Arbiters))
}

// setConfig is the part of a replica set's configuration that matters here.
type setConfig struct {
	Members []struct {
		Votes   int  `bson:"votes"`
		Arbiter bool `bson:"arbiterOnly"`
	} `bson:"members"`
	Journal *bool `bson:"writeConcernMajorityJournalDefault"` // nil: true
}

func (c *setConfig) warnings() []durability.Warning {
	data, voters := 0, 0
	for _, m := range c.Members {
		if m.Votes == 0 {
			continue
		}
		voters++
		if !m.Arbiter {
			data++
		}
	}
	all := copies(data, voters)
	if c.Journal != nil && !*c.Journal {
		all = append(all, durability.Warning{
			Detail: "writeConcernMajorityJournalDefault is false, as for members with the in-memory storage engine: these forget confirmed writes when they restart, and two may lead",
			Advice: "use members that keep a journal, and set it to true",
		})
	}
	return all
}

// copies is what the number of voting members that have data means: a write counts when
// a majority of all voters has it, and arbiters never have.
func copies(data, voters int) []durability.Warning {
	switch majority := voters/2 + 1; {
	case data == 1:
		return []durability.Warning{{
			Detail: "the replica set has one voting member with data: its disk is the only one that has what was confirmed, and nobody can lead while it is away",
			Advice: "use three members with data",
		}}
	case data <= majority:
		return []durability.Warning{{
			Detail: fmt.Sprintf("the replica set has %d voting members with data, and a write counts when %d have it: nobody can lead while one of them is away", data, min(majority, data)),
			Advice: "use three members with data",
		}}
	}
	return nil
}
