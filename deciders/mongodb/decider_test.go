package mongodb_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/mongodb"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/storetest"
	"go.mongodb.org/mongo-driver/v2/bson"
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

func TestOpen(t *testing.T) {
	s := imitate(t)
	d := store.Opened(t, "mongodb://"+s.Addr+"/ops/elections/a%20b/c?replicaSet=rs0&appName=x&retryWrites=true&feed_wait=1m")
	feedtest.Write(t, d, 1, feedtest.Read(t, d).Token)
	if s.docs["elections"]["a b/c"] == nil {
		t.Errorf("there are %v", s.docs)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	feedtest.Permanent(t, feedtest.ReadError(t, d), "ops.elections", "disconnected")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := feedtest.Open(ctx, mongodb.Open, s.at("")); err == nil {
		t.Error("Open with a ctx that has ended works")
	}
}

// The files of TLS are read for each connection.
func TestRenewedFiles(t *testing.T) {
	ca := feedtest.NewAuthority(t, "server", "client")
	s := imitateTLS(t, ca.ServerTLS("server"))
	d := store.Opened(t, s.at("&heartbeatFrequencyMS=500&"+storetest.TLS(ca, "client")))
	storetest.Renewed(t, d, ca, func() { s.Refuse(); s.Heal() })
}

func TestOpenRefuses(t *testing.T) {
	feedtest.OpenRefuses(t, mongodb.Open, map[string]string{
		"https://h/d/c/e":                                        "scheme",
		"mongodb:///d/c/e":                                       "host",
		"mongodb://h/d/c":                                        "collection",
		"mongodb://h/d/c/":                                       "election",
		"mongodb://h/d/c/e?w=1":                                  "no effect",
		"mongodb://h/d/c/e?frobnicate=1":                         "frobnicate",
		"mongodb://h/d/c/e?feed_wait=soon":                       "feed_wait",
		"mongodb://h/d/c/e?tls=perhaps":                          "tls",
		"mongodb://h/d/c/e?tls=false&tls_ca=/x":                  "leave out tls=false",
		"mongodb://h/d/c/e?SSL=false&tls_cert=/x":                "leave out SSL",
		"mongodb://h/d/c/e?tlsInsecure=true&tls_ca=/x":           "leave out tlsInsecure",
		"mongodb://h/d/c/e?tls=true&tls_ca=/no/such/file":        "/no/such/file",
		"mongodb://h/d/c/e?tls=true&tlsCAFile=/no/such/file":     "tls_ca",
		"mongodb://me:s3cret@h/d/c/e?frobnicate=1":               "xxxxx",
		"mongodb://me:s3cret@h:99999999/d/c/e":                   "",
		"mongodb://me:s3cret@h/d/c/e?authMechanism=MONGODB-FROB": "",
		"mongodb://me:s3cret@h/d/c/e?authMechanism=MONGODB-X509": "",
		"mongodb://h/d/c/e?authMechanismProperties=s3cret":       "",
	})
}

// The driver gets what is for it, and no more: here, that the server is not what it was
// said to be.
func TestOpenHandsOptionsOn(t *testing.T) {
	s := imitate(t)
	d := store.Opened(t, "mongodb://"+s.Addr+"/ops/elections/web?replicaSet=another&serverSelectionTimeoutMS=200")
	if feedtest.ReadError(t, d) == nil {
		t.Error("a replica set of another name is read")
	}
}

// A standby's feed keeps a connection busy, and the first write finds another: one to
// monitor the server, one for the feed, one to spare.
func TestOpenKeepsAConnectionToSpare(t *testing.T) {
	s := imitate(t)
	d := store.Opened(t, s.at(""))
	feedtest.Number(t, feedtest.Follow(t, d), 0)
	feedtest.Eventually(t, "three connections", func() bool { return s.Connections() >= 3 })
}

// A client that may have one connection only is not asked for two, which the
// driver refuses.
func TestOpenWithOneConnection(t *testing.T) {
	s := imitate(t)
	for _, parameter := range []string{"maxPoolSize=1", "maxPoolSize=1&minPoolSize=1", "maxPoolSize=0"} {
		d := store.Opened(t, s.at("&"+parameter))
		if err := feedtest.ReadError(t, d); err != nil {
			t.Errorf("%s: %v", parameter, err)
		}
	}
}

// The same names on other servers are another election: String says where it is, and as whom nobody.
func TestPlace(t *testing.T) {
	const want = `MongoDB ops.elections _id "web" at a:1,b:2`
	if d := store.Opened(t, "mongodb://me:s3cret@a:1,b:2/ops/elections/web"); d.String() != want {
		t.Errorf("%s, want %s", d, want)
	}
}

func TestAuthentication(t *testing.T) {
	s := imitate(t)
	s.with(func() { s.password = "s3cret" }) // before the first connection
	at := "mongodb://app:s3cret@" + s.Addr + "/ops/elections/web?replicaSet=rs0&serverSelectionTimeoutMS=2000"
	d := store.Opened(t, at)
	feed := feedtest.Follow(t, d)
	feedtest.Number(t, feed, 0)
	feedtest.Write(t, d, 1, feedtest.Read(t, d).Token)
	feedtest.Number(t, feed, 1)
	feedtest.Read(t, store.Opened(t, at+"&authMechanism=SCRAM-SHA-256&authSource=admin"))

	for what, c := range map[string]struct{ address, word string }{
		"a wrong password":     {strings.Replace(at, "s3cret", "s3cret-not", 1), "authSource"},
		"another user":         {strings.Replace(at, "app", "somebody", 1), "authSource"},
		"another database":     {at + "&authSource=ops", "authSource"},
		"without logging in":   {strings.Replace(at, "app:s3cret@", "", 1), "grant"},
		"a method it has none": {at + "&authMechanism=SCRAM-SHA-1", "authSource"},
	} {
		d := store.Opened(t, c.address)
		for _, err := range feedtest.Errors(t, d) {
			feedtest.Denied(t, err, c.word, "ops.elections")
			if err != nil && strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%s: a secret in the error: %v", what, err)
			}
		}
	}
}

// TLS both ways, on FerretDB: the server shows a certificate, and demands one.
func TestTLS(t *testing.T) {
	stores.Nightly(t, "the client tries again for some seconds before it says what is wrong")
	ca, other := feedtest.NewAuthority(t, "server", "client"), feedtest.NewAuthority(t, "client")
	server := stores.FerretDB(t, "-tls-cert", ca.Path("server.pem"), "-tls-key", ca.Path("server.key"), "-tls-ca", ca.Path("ca.pem"))
	at := strings.TrimSuffix(server.URI, "/") + "/ops/elections/web?serverSelectionTimeoutMS=5000"
	d := store.Opened(t, at+"&"+storetest.TLS(ca, "client"))
	feedtest.Write(t, d, 1, feedtest.Read(t, d).Token)
	feedtest.Reads(t, d, 1)
	own := "&tls=true&tls_cert=" + ca.Path("client.pem") + "&tls_key=" + ca.Path("client.key")
	for what, c := range map[string]struct{ parameters, word string }{
		"an authority that the system does not know": {own, "tls_ca"},
		"another's authority":                        {own + "&tls_ca=" + other.Path("ca.pem"), "tls_ca"},
	} {
		begin := time.Now()
		feedtest.Permanent(t, feedtest.ReadError(t, store.Opened(t, at+c.parameters)), c.word, "ops.elections")
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("%s: it took %v", what, took)
		}
	}
	for what, parameters := range map[string]string{
		"no certificate of one's own": "&" + storetest.TLS(ca, ""),
		"another's certificate":       "&tls_ca=" + ca.Path("ca.pem") + "&tls_cert=" + other.Path("client.pem") + "&tls_key=" + other.Path("client.key"),
		"no TLS":                      "",
	} {
		// Mostly the driver only says that the connection was closed.
		_, err := store.Opened(t, at+parameters).ReadCurrent(t.Context())
		feedtest.Says(t, err, "ops.elections")
		if errors.Is(err, leaderelection.ErrLostRace) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
