package mongodb_test

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/c8e606e4/leaderelection/deciders/mongodb"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// config is a replica set's: a letter for each member. V votes and has data, H is hidden,
// A is an arbiter, N has data and no vote.
func config(members string, more ...bson.E) bson.D {
	list := bson.A{}
	for i, kind := range members {
		votes := int32(1)
		if kind == 'N' {
			votes = 0
		}
		list = append(list, bson.D{{Key: "_id", Value: i}, {Key: "votes", Value: votes}, {Key: "arbiterOnly", Value: kind == 'A'}, {Key: "hidden", Value: kind == 'H'}})
	}
	return append(bson.D{{Key: "_id", Value: "rs0"}, {Key: "members", Value: list}}, more...)
}

// What a replica set's configuration says is warned of if it may lose a confirmed write,
// or keep all from writing. By the imitation: FerretDB has no replica sets.
func TestDurability(t *testing.T) {
	for name, c := range map[string]struct {
		config bson.D
		want   []string
	}{
		"three":              {config("VVV", bson.E{Key: "writeConcernMajorityJournalDefault", Value: true}), nil},
		"one hidden":         {config("VVH"), nil},
		"five, two arbiters": {config("VVVAA"), []string{"3 voting members with data", "when 3 have it"}},
		"one":                {config("V"), []string{"one voting member with data", "three members"}},
		"one has the vote":   {config("VNN"), []string{"one voting member with data"}},
		"two":                {config("VV"), []string{"2 voting members with data", "when 2 have it", "nobody can lead while one"}},
		"an arbiter":         {config("VVA"), []string{"2 voting members with data", "when 2 have it"}},
		"two arbiters":       {config("VVAA"), []string{"2 voting members with data", "when 2 have it"}},
		"in memory":          {config("VVV", bson.E{Key: "writeConcernMajorityJournalDefault", Value: false}), []string{"writeConcernMajorityJournalDefault is false", "keep a journal"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := imitate(t)
			s.config = c.config
			feedtest.Examines(t, mongodb.NewDecider(client(t, s.uri()), database, collection, "e", nil), c.want...)
		})
	}
}

// A user who may not see the configuration is told so, and what hello says is examined.
func TestDurabilityRefused(t *testing.T) {
	for name, c := range map[string]struct {
		said bson.D
		want []string
	}{
		"one":        {nil, []string{"one voting member with data"}},
		"passives":   {bson.D{{Key: "passives", Value: bson.A{"127.0.0.1:1", "127.0.0.1:2"}}}, nil},
		"an arbiter": {bson.D{{Key: "passives", Value: bson.A{"127.0.0.1:1"}}, {Key: "arbiters", Value: bson.A{"127.0.0.1:2"}}}, []string{"2 voting members with data", "when 2 have it"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := imitate(t)
			s.said = c.said
			uri := "mongodb://" + s.addr + "/?directConnection=true" // not to the others, which are not there
			w, err := mongodb.NewDecider(client(t, uri), database, collection, "e", nil).Durability(t.Context())
			feedtest.Warns(t, w, c.want...)
			feedtest.Passing(t, err, `"e"`, "replSetGetConfig", "clusterMonitor", "not authorized")
		})
	}
	s := imitate(t)
	s.config = config("")
	_, err := mongodb.NewDecider(client(t, s.uri()), database, collection, "e", nil).Durability(t.Context())
	feedtest.Passing(t, err, "names no members")
	s.inject(func(string) *fault { return &fault{cut: true} })
	_, err = mongodb.NewDecider(client(t, "mongodb://"+s.addr+"/?serverSelectionTimeoutMS=100"), database, collection, "e", nil).Durability(t.Context())
	feedtest.Passing(t, err, "examining the server of", `"e"`)
}

// A server by itself, which is what FerretDB says that it is, is warned of. Mongos tells
// nothing of its shards, and that is said.
func TestDurabilityOutsideReplicaSets(t *testing.T) {
	s := imitate(t)
	s.standalone = true
	d := mongodb.NewDecider(client(t, "mongodb://"+s.addr), database, collection, "e", nil)
	feedtest.Examines(t, d, "not a member of a replica set", "candidates poll", "three members")
	s.mu.Lock()
	s.said = bson.D{{Key: "msg", Value: "isdbgrid"}}
	s.mu.Unlock()
	w, err := d.Durability(t.Context())
	feedtest.Warns(t, w)
	feedtest.Passing(t, err, "mongos", "shards", `"e"`)
}
