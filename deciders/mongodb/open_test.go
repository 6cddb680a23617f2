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
)

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
