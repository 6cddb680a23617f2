package mongodb_test

import (
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/mongodb"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// A document that is none of ours is reported, and left alone.
func TestForeignDocumentIsLeftAlone(t *testing.T) {
	s, d := imitated(t)
	for name, doc := range map[string]bson.M{
		"another's":            {"_id": "web", "holder": "x"},
		"without a version":    {"_id": "web", "record": `{}`},
		"version of a kind":    {"_id": "web", "version": 7, "record": `{}`},
		"record of a kind":     {"_id": "web", "version": bson.NewObjectID(), "record": bson.M{"a": 1}},
		"record no record":     {"_id": "web", "version": bson.NewObjectID(), "record": `{"leader":"x"}`},
		"truncated":            {"_id": "web", "version": bson.NewObjectID(), "record": `{"leaderelection":1,`},
		"without a record":     {"_id": "web", "version": bson.NewObjectID()},
		"date of another kind": {"_id": "web", "version": bson.NewObjectID(), "record": `{}`, "written": "today"},
	} {
		t.Run(name, func(t *testing.T) {
			s.set(doc)
			before := s.docs[collection]["web"].String()
			feedtest.Foreign(t, d, "leaderelection_test.elections", `"web"`)
			if after := s.docs[collection]["web"].String(); after != before {
				t.Errorf("it was %s and is %s", before, after)
			}
		})
	}
}

// Fields that somebody has added stay.
func TestOtherFieldsAreLeftAlone(t *testing.T) {
	s, d := imitated(t)
	token := feedtest.Write(t, d, 1, nil)
	s.touch("web", "note", "ours")
	token = feedtest.Write(t, d, 2, token)
	if note := s.docs[collection]["web"].Lookup("note").StringValue(); note != "ours" {
		t.Errorf("note is %q", note)
	}
	if ts := feedtest.Read(t, d).Token.CommitTS(); !ts.Equal(token.CommitTS()) {
		t.Errorf("CommitTS read %v, written %v", ts, token.CommitTS())
	}
}

// What the server answers, and what becomes of it.
func TestServerErrors(t *testing.T) {
	s := imitate(t)
	d := web(t, s.uri()+"&retryReads=false&retryWrites=false")
	token := feedtest.Write(t, d, 1, nil)
	for code, word := range map[int32]string{
		13: "grant", 18: "password", 72: "options", 73: "name", 121: "validator", 61: "shard", 166: "view", 10334: "short",
		8000: "quota", 148: "enableMajorityReadConcern", 11000: "index",
		50: "", 11600: "", 189: "", 64: "", 202: "", // pass
	} {
		s.befall(&fault{code: code, text: "as injected"}, "find", "findAndModify", "aggregate")
		feed := feedtest.Next(t, feedtest.Follow(t, d)).Err
		for _, err := range []error{feedtest.ReadError(t, d), feedtest.WriteError(t, d, 2, token), feed} {
			switch {
			case err == nil, errors.Is(err, leaderelection.ErrLostRace):
				t.Errorf("code %d: %v", code, err)
			case word != "":
				feedtest.Permanent(t, err, word, `"web"`, "as injected")
				if denied := errors.Is(err, leaderelection.ErrDenied); denied != (code == 13 || code == 18 || code == 8000) {
					t.Errorf("code %d: access denied: %v", code, denied)
				}
			case errors.Is(err, leaderelection.ErrPermanent):
				t.Errorf("code %d: %v", code, err)
			}
		}
	}
	s.inject(nil)
	feedtest.Write(t, d, 2, token)
}

// A write that has happened, but not for a majority yet, is an open question, and so is
// one whose answer was lost; neither is a lost race.
func TestOpenQuestions(t *testing.T) {
	s := imitate(t)
	d := web(t, s.uri()+"&retryWrites=false")
	for i, f := range []*fault{{concern: true}, {cutLate: true}} {
		for _, create := range []bool{true, false} {
			s.set(nil)
			var token leaderelection.LeaderToken
			if !create {
				token = feedtest.Write(t, d, 1, nil)
			}
			s.befall(f, "findAndModify")
			feedtest.Passing(t, feedtest.WriteError(t, d, 2, token))
			s.inject(nil)
			if e := feedtest.Read(t, d); e.ElectionNumber != 2 {
				t.Errorf("fault %d, create %v: read %+v", i, create, e)
			}
		}
	}
}

// An answer that does not show the document as it was to be written is no success.
func TestFalseSuccess(t *testing.T) {
	s, d := imitated(t)
	for _, create := range []bool{true, false} {
		s.inject(nil)
		s.set(nil)
		var token leaderelection.LeaderToken
		if !create {
			token = feedtest.Write(t, d, 1, nil)
		}
		for name, value := range map[string]bson.D{
			"no value": nil, "nothing": doc("value", nil), "an empty document": doc("value", bson.D{}),
			"another document": doc("value", doc("_id", "web", "version", bson.NewObjectID(), "record", "{}")),
		} {
			s.befall(&fault{lie: append(doc("ok", 1, "n", 1), value...)}, "findAndModify")
			if err := feedtest.WriteError(t, d, 2, token); err == nil {
				t.Errorf("%s, create %v: taken for a success", name, create)
			}
		}
	}
}

// An election without a name, and a bare number, which counts nanoseconds: nobody means so few.
func TestBadOptions(t *testing.T) {
	const uri = "mongodb://127.0.0.1:1"
	feedtest.Refuses(t, decider(t, uri, "", nil), "name")
	feedtest.Refuses(t, decider(t, uri, "one", &mongodb.Options{FeedWait: 10}), "nanoseconds")
	feedtest.Refuses(t, decider(t, uri, "one", &mongodb.Options{Announcements: collection}), "Announcements", "record")
}

// With no server, or one that does not answer, every call returns when its ctx ends.
func TestNoAnswer(t *testing.T) {
	s := imitate(t)
	hung := web(t, s.uri())
	feedtest.Write(t, hung, 1, nil)
	s.inject(func(c string) *fault { return &fault{hang: c != "hello" && c != "isMaster"} })
	defer s.inject(nil)
	for _, d := range []*mongodb.Decider{hung, web(t, "mongodb://127.0.0.1:1")} {
		feedtest.TimesOut(t, 200*time.Millisecond, d, nil, `"web"`)
	}
}

// config is a replica set's: a letter for each member. V votes and has data, H is hidden,
// A is an arbiter, N has data and no vote.
func config(members string, more ...any) bson.D {
	list := bson.A{}
	for i, kind := range members {
		votes := int32(1)
		if kind == 'N' {
			votes = 0
		}
		list = append(list, doc("_id", i, "votes", votes, "arbiterOnly", kind == 'A', "hidden", kind == 'H'))
	}
	return append(doc("_id", "rs0", "members", list), doc(more...)...)
}

// What a replica set's configuration says is warned of if it may lose a confirmed write,
// or keep all from writing. By the imitation: FerretDB has no replica sets.
func TestDurability(t *testing.T) {
	for name, c := range map[string]struct {
		config bson.D
		want   []string
	}{
		"three":              {config("VVV", "writeConcernMajorityJournalDefault", true), nil},
		"one hidden":         {config("VVH"), nil},
		"five, two arbiters": {config("VVVAA"), []string{"3 voting members with data", "when 3 have it"}},
		"one":                {config("V"), []string{"one voting member with data", "three members"}},
		"one has the vote":   {config("VNN"), []string{"one voting member with data"}},
		"two":                {config("VV"), []string{"2 voting members with data", "when 2 have it", "nobody can lead while one"}},
		"an arbiter":         {config("VVA"), []string{"2 voting members with data", "when 2 have it"}},
		"two arbiters":       {config("VVAA"), []string{"2 voting members with data", "when 2 have it"}},
		"in memory":          {config("VVV", "writeConcernMajorityJournalDefault", false), []string{"writeConcernMajorityJournalDefault is false", "keep a journal"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := imitate(t)
			s.config = c.config
			feedtest.Examines(t, decider(t, s.uri(), "e", nil), c.want...)
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
		"passives":   {doc("passives", bson.A{"127.0.0.1:1", "127.0.0.1:2"}), nil},
		"an arbiter": {doc("passives", bson.A{"127.0.0.1:1"}, "arbiters", bson.A{"127.0.0.1:2"}), []string{"2 voting members with data", "when 2 have it"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := imitate(t)
			s.said = c.said
			w, err := store.Opened(t, store.At(s.Addr, "e")).Durability(t.Context()) // not by the others, which are not there
			feedtest.Warns(t, w, c.want...)
			feedtest.Passing(t, err, `"e"`, "replSetGetConfig", "clusterMonitor", "not authorized")
		})
	}
	s := imitate(t)
	s.config = config("")
	_, err := decider(t, s.uri(), "e", nil).Durability(t.Context())
	feedtest.Passing(t, err, "names no members")
	s.inject(func(string) *fault { return &fault{cut: true} })
	_, err = decider(t, "mongodb://"+s.Addr+"/?serverSelectionTimeoutMS=100", "e", nil).Durability(t.Context())
	feedtest.Passing(t, err, "examining the server of", `"e"`)
}

// A server by itself, which is what FerretDB says that it is, is warned of. Mongos tells
// nothing of its shards, and that is said.
func TestDurabilityOutsideReplicaSets(t *testing.T) {
	s := alone(t)
	d := decider(t, s.uri(), "e", nil)
	feedtest.Examines(t, d, "not a member of a replica set", "candidates poll", "three members")
	s.with(func() { s.said = doc("msg", "isdbgrid") })
	w, err := d.Durability(t.Context())
	feedtest.Warns(t, w)
	feedtest.Passing(t, err, "mongos", "shards", `"e"`)
}
