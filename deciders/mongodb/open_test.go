package mongodb_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/c8e606e4/leaderelection/deciders/mongodb"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

func TestOpen(t *testing.T) {
	s := imitate(t)
	d := opened(t, "mongodb://"+s.addr+"/ops/elections/a%20b/c?replicaSet=rs0&appName=x&retryWrites=true&feed_wait=1m")
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
	if _, err := open(ctx, "mongodb://"+s.addr+"/ops/elections/web"); err == nil {
		t.Error("Open with a ctx that has ended works")
	}
}

// The files of TLS are read for each connection.
func TestRenewedFiles(t *testing.T) {
	ca, other := feedtest.NewAuthority(t, "server", "client"), feedtest.NewAuthority(t)
	s := imitateTLS(t, ca.ServerTLS("server"))
	file := filepath.Join(t.TempDir(), "ca.pem")
	put := func(from string) {
		content, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(other.Path("ca.pem"))
	d := opened(t, "mongodb://"+s.addr+"/ops/elections/web?replicaSet=rs0&serverSelectionTimeoutMS=300&heartbeatFrequencyMS=500&tls_ca="+file+
		"&tls_cert="+ca.Path("client.pem")+"&tls_key="+ca.Path("client.key"))
	// The driver does not always say why it gave a connection up: ask again after any other error.
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	_, err := d.ReadCurrent(ctx)
	for err != nil && ctx.Err() == nil && !strings.Contains(err.Error(), "certificate") {
		_, err = d.ReadCurrent(ctx)
	}
	if err == nil || ctx.Err() != nil {
		t.Fatalf("a server of another authority: %v", err)
	}
	put(ca.Path("ca.pem"))
	for err != nil {
		if _, err = d.ReadCurrent(ctx); ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	feedtest.OpenRefuses(t, mongodb.Open, map[string]string{
		"https://h/d/c/e":                                        "scheme",
		"mongodb:///d/c/e":                                       "host",
		"mongodb://h/d/c":                                        "collection",
		"mongodb://h//c/e":                                       "collection",
		"mongodb://h/d/c/":                                       "election",
		"mongodb://h/d/c/e#f":                                    "%23",
		"mongodb://h/d/c/e?w=1":                                  "no effect",
		"mongodb://h/d/c/e?readPreference=secondary":             "no effect",
		"mongodb://h/d/c/e?frobnicate=1":                         "frobnicate",
		"mongodb://h/d/c/e?linearizable=true":                    "linearizable",
		"mongodb://h/d/c/e?feed_wait=soon":                       "feed_wait",
		"mongodb://h/d/c/e?feed_wait=-1s":                        "feed_wait",
		"mongodb://h/d/c/e?appName=a&appName=b":                  "appName",
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
	d := opened(t, "mongodb://"+s.addr+"/ops/elections/web?replicaSet=another&serverSelectionTimeoutMS=200")
	if _, err := d.ReadCurrent(t.Context()); err == nil {
		t.Error("a replica set of another name is read")
	}
	s.set("elections", "web", bson.M{"_id": "web"})
}

// A standby's feed keeps a connection busy, and the first write finds another: one to
// monitor the server, one for the feed, one to spare.
func TestOpenKeepsAConnectionToSpare(t *testing.T) {
	s := imitate(t)
	d := opened(t, "mongodb://"+s.addr+"/ops/elections/web?replicaSet=rs0")
	feedtest.Number(t, feedtest.Follow(t, d), 0)
	if err := s.awaitConnections(t.Context(), 3); err != nil {
		t.Error(err)
	}
}

// A client that may have one connection only is not asked for two, which the
// driver refuses.
func TestOpenWithOneConnection(t *testing.T) {
	s := imitate(t)
	for _, parameter := range []string{"maxPoolSize=1", "maxPoolSize=1&minPoolSize=1", "maxPoolSize=0"} {
		d := opened(t, "mongodb://"+s.addr+"/ops/elections/web?replicaSet=rs0&"+parameter)
		if _, err := d.ReadCurrent(t.Context()); err != nil {
			t.Errorf("%s: %v", parameter, err)
		}
	}
}

// The same names on other servers are another election: String says where it is, and as whom nobody.
func TestPlace(t *testing.T) {
	const want = `MongoDB ops.elections _id "web" at a:1,b:2`
	if d := opened(t, "mongodb://me:s3cret@a:1,b:2/ops/elections/web"); d.String() != want {
		t.Errorf("%s, want %s", d, want)
	}
}
