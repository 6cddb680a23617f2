package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/redis/go-redis/v9"

	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/shard"
)

// everyStore has for each store what starts its server and returns an election's URL, with what its candidates need in their
// environment, and what doctor says of its settings, as they are here.
var everyStore = map[string]struct {
	durable string
	start   func(t *testing.T) (url string, env []string)
}{
	"file": {unexamined, func(t *testing.T) (string, []string) {
		return "file://" + filepath.Join(t.TempDir(), "election.json"), nil
	}},
	"nats": {"warning +the store's durability: the bucket has one replica", func(t *testing.T) (string, []string) {
		return stores.NATS(t).URL() + "/elections/one?create=true", nil
	}},
	"gs": {examined, func(t *testing.T) (string, []string) {
		return "gs://elections/one?anonymous=true&endpoint=" + stores.FakeGCS(t, "elections"), nil
	}},
	"azblob": {examined, func(t *testing.T) (string, []string) {
		return "azblob://" + stores.AzuriteAccount + "/elections/one?create=true&endpoint=" + stores.Azurite(t),
			[]string{"AZURE_STORAGE_KEY=" + stores.AzuriteKey}
	}},
	"dynamodb": {examined, func(t *testing.T) (string, []string) {
		return "dynamodb://elections/one?region=eu-central-1&create=true&endpoint=" + stores.Dynalite(t), stores.AWSEnv("key", "secret")
	}},
	"s3": {examined, func(t *testing.T) (string, []string) {
		endpoint := stores.Versitygw(t)
		client := s3.New(s3.Options{Region: "us-east-1", BaseEndpoint: &endpoint, UsePathStyle: true,
			Credentials: credentials.NewStaticCredentialsProvider("root", "root-secret", "")})
		if _, err := client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String("elections")}); err != nil {
			t.Fatal(err)
		}
		return "s3://elections/one?region=us-east-1&path_style=true&endpoint=" + endpoint, stores.AWSEnv("root", "root-secret")
	}},
	"etcd": {"warning +the store's durability: the cluster has one voting member", func(t *testing.T) (string, []string) {
		return "etcd://" + stores.Etcd(t).Endpoint + "/elections/one", nil
	}},
	"kubernetes": {unexamined, func(t *testing.T) (string, []string) {
		return "kubernetes://default/one?kubeconfig=" + stores.Kube(t).Config(t, "admin", ""), nil
	}},
	"redis": {"warning +the store's durability: appendonly is no", func(t *testing.T) (string, []string) {
		return "redis://" + stores.Redis(t).Addr + "/0?key=election", nil
	}},
	"mongodb": {"warning +the store's durability: this server is not a member of a replica set", func(t *testing.T) (string, []string) {
		// FerretDB in place of a mongod, which passes commands on one at a time.
		return stores.FerretDB(t).URI + "elections/elections/one", nil
	}},
	"postgres": {"warning +the store's durability: fsync is off", func(t *testing.T) (string, []string) {
		return "postgres://postgres@" + stores.Postgres(t).Addr + "/postgres?sslmode=disable&create=true&election=one", nil
	}},
	"mysql": {"warning +the store's durability: innodb_flush_log_at_trx_commit is 0", func(t *testing.T) (string, []string) {
		return "mysql://root@" + stores.MariaDB(t).Addr + "/test?create=true&election=one", nil
	}},
	"zookeeper": {"warning +the store's durability: there is one server that votes", func(t *testing.T) (string, []string) {
		return "zookeeper://" + stores.ZooKeeper(t).Addr + "/elections/one?create=true", nil
	}},
	"consul": {"warning +the store's durability: there is one server", func(t *testing.T) (string, []string) {
		return "consul://" + stores.Consul(t, "").Address + "/elections/one", nil
	}},
	"sqlite": {examined, func(t *testing.T) (string, []string) {
		return "sqlite://" + filepath.Join(t.TempDir(), "app.db") + "?create=true&election=one", nil
	}},
}

const examined = "ok +the store's durability: no setting that can be asked for"

const unexamined = "not checked +the store's durability: leaderelect does not examine the settings"

// No store is forgotten, but for the one without a server here.
func TestEveryStoreIsTried(t *testing.T) {
	for _, form := range store.Forms {
		if name := store.Kind(form); name != "rethinkdb" && everyStore[name].durable == "" {
			t.Errorf("everyStore lacks %s", name)
		}
	}
}

// A short election on every store: one leads and is killed, the other leads and
// hands over to one that came later, and no two commands ever ran at once.
func TestEveryStore(t *testing.T) {
	stores.Nightly(t, "real processes by the wall clock")
	t.Parallel()
	for name, of := range everyStore {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, env := of.start(t)
			ledger := filepath.Join(t.TempDir(), "ledger")
			start := func(id string) *candidate {
				return launch(t, func(c *exec.Cmd) {
					c.Args[len(c.Args)-1] = ledger
					c.Env = append(c.Env, env...)
				}, "run", "--id", id, "--term", "5s", "--skew", "100ms", url, "--", "child")
			}
			says := func(args ...string) (string, error) {
				c := exec.Command("leaderelect", args...)
				c.Env = append(os.Environ(), env...)
				out, err := c.CombinedOutput()
				return string(out), err
			}
			a := start("a")
			has(t, ledger, "^beat ")
			n := readLedger(t, ledger)[0].token // it is born with the time
			b := start("b")
			_ = a.Process.Signal(syscall.SIGKILL)
			has(t, ledger, fmt.Sprint("^beat ", n+1))
			c := start("c")
			if out, err := says("transfer", "--force", "--timeout", "20s", url, "c"); err != nil || !strings.Contains(out, fmt.Sprint("c leads, with token ", n+2)) {
				t.Errorf("transfer: %v\n%s", err, out)
			}
			has(t, ledger, fmt.Sprint("^beat ", n+2))
			for _, x := range []*candidate{b, c} {
				x.stops(t, 0)
			}
			if err := overlap(readLedger(t, ledger)); err != nil {
				t.Error(err)
			}
			if out, err := says("reset", "--after", fmt.Sprint(n+100), url); err != nil {
				t.Errorf("reset: %v\n%s", err, out)
			}
			out, err := says("doctor", url)
			if want := regexp.MustCompile("(?m)^" + of.durable); err != nil || !want.MatchString(out) {
				t.Errorf("doctor: %v; want %q in:\n%s", err, want, out)
			} else {
				t.Logf("doctor:\n%s", out)
			}
		})
	}
}

// A user with the permissions that the README names may do all that a group needs, and one
// who may write a single record is told what is missing.
func TestGroupPermissions(t *testing.T) {
	stores.Nightly(t, "real processes by the wall clock")
	t.Parallel()
	server := stores.Redis(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer client.Close()
	keys := strings.Fields(readme(t, "\n\\| redis \\|.*\\| `([^|]*)` \\|\n"))
	if len(keys) != 3 { // two, and a word between them
		t.Fatalf("the README's permissions are %q", keys)
	}
	for _, c := range []struct{ user, key, channel, says string }{
		{"all", strings.Trim(keys[0], "`"), strings.Trim(keys[2], "`"), "ok           two names are two records"},
		{"one", "~orders-coordinator", "&leaderelection:orders-coordinator", "members write records of several names"},
	} {
		rules := []any{"ACL", "SETUSER", c.user, "on", ">secret", c.key, c.channel,
			"+eval", "+hmget", "+exists", "+subscribe", "+unsubscribe", "+ping", "+time", "+hset", "+persist", "+publish"}
		must(t, client.Do(t.Context(), rules...).Err())
		url := "redis://" + c.user + ":secret@" + server.Addr + "/0?key=orders"
		out, err := exec.Command("leaderelect", "shards", "doctor", "--shards", "8", url).CombinedOutput()
		if !strings.Contains(string(out), c.says) || (err == nil) != (c.user == "all") || strings.Contains(string(out), "secret") {
			t.Errorf("%s: %v, want %q in:\n%s", c.user, err, c.says, out)
		}
	}
}

// connections is how many connections a member has at most, as the README says, that coordinates a
// group: it follows all of the group's records.
var connections = map[string]int{"postgres": 11, "redis": 10, "mysql": 8, "etcd": 1, "nats": 1, "zookeeper": 1}

// All records of a group share what the process has of connections.
func TestConnectionsOfAGroup(t *testing.T) {
	stores.Nightly(t, "real processes by the wall clock")
	t.Parallel()
	for name, most := range connections {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			raw, _ := everyStore[name].start(t)
			u, err := url.Parse(raw)
			must(t, err)
			between := stores.NewRelay(t, u.Host)
			u.Host = between.Addr
			own := member(t, u.String(), "a")
			member(t, u.String(), "b")
			member(t, u.String(), "c")
			if !eventually(func() bool { return len(own.Owned()) == 3 }) {
				t.Fatalf("it owns %d", len(own.Owned()))
			}
			time.Sleep(2 * time.Second)
			if n := between.Connections(); n > 3*most {
				t.Errorf("three members of one group have %d connections, want %d at most each", n, most)
			} else {
				t.Logf("%d connections of three members", n)
			}
		})
	}
}

// member takes part in a group as a process does.
func member(t *testing.T, raw, id string) *shard.Member {
	g, err := store.OpenGroup(t.Context(), raw, "coordinator", patience)
	must(t, err)
	m, err := shard.Config{
		Store: g.Store, MemberID: id, Shards: shard.Numbered(9), TermLength: 5 * time.Second, MaxClockSkew: 100 * time.Millisecond, PollInterval: 200 * time.Millisecond,
		OnOwned: func(ctx context.Context, _ *shard.Owned) error { <-ctx.Done(); return nil },
	}.Start(context.Background())
	must(t, err)
	t.Cleanup(func() {
		_ = m.Leave(context.Background())
		g.Close()
	})
	return m
}

// A build without any store but files works with those, and says of each other one that it
// was left out, and by which tag.
func TestStoresLeftOut(t *testing.T) {
	stores.Nightly(t, "real processes by the wall clock")
	dir := t.TempDir()
	program := filepath.Join(dir, "leaderelect")
	out, err := exec.Command("go", "build", "-tags", strings.Join(store.Tags(), ","), "-o", program, ".").CombinedOutput()
	if err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	run := func(args ...string) (string, int) {
		cmd := exec.Command(program, args...)
		out, _ := cmd.CombinedOutput() // the code says it
		return string(out), cmd.ProcessState.ExitCode()
	}
	if out, code := run("--version"); code != 0 || !strings.HasPrefix(out, "leaderelect ") {
		t.Errorf("--version: %d\n%s", code, out)
	}
	if out, code := run("doctor", "file://"+filepath.Join(dir, "election.json")); code != 0 {
		t.Errorf("doctor: %d\n%s", code, out)
	}
	forms := append(append([]string{}, store.Forms...), store.TLS...)
	for _, form := range forms {
		scheme, _, _ := strings.Cut(form, ":")
		if scheme == "file" {
			continue
		}
		out, code := run("doctor", form)
		if code == 0 || !strings.Contains(out, "this build of leaderelect was made without") || !strings.Contains(out, scheme+":// URLs") {
			t.Errorf("doctor %s: %d\n%s", form, code, out)
		}
	}
	if out, err := exec.Command("go", "list", "-tags", strings.Join(store.Tags(), ","), "-deps", ".").Output(); err != nil {
		t.Error(err)
	} else {
		for _, sdk := range []string{"cloud.google.com/", "github.com/aws/", "github.com/Azure/", "github.com/nats-io/", "go.etcd.io/", "github.com/redis/", "github.com/jackc/", "go.mongodb.org/", "gopkg.in/rethinkdb", "k8s.io/", "github.com/go-sql-driver/", "modernc.org/", "github.com/go-zookeeper/"} {
			if strings.Contains(string(out), "\n"+sdk) {
				t.Errorf("it has %s in it", sdk)
			}
		}
	}
}

// This build, which names no tag, has them all.
func TestAllStoresBuiltIn(t *testing.T) {
	if has, all := len(store.BuiltIn()), len(store.Tags())+1; has != all {
		t.Errorf("%d of %d stores: %v", has, all, store.BuiltIn())
	}
}
