package store

import (
	"slices"
	"strings"
)

// kind is a store, without its Open function, which a build may leave out.
type kind struct {
	Schemes []string // of its URLs; the first one is its name
	Tag     string   // the build tag that leaves it out of the program; empty: it is always there
	Form    string   // of its URLs, for help texts
	Secure  []string // forms for connections with TLS, and by a socket, for help texts
	// Secrets are the variables of the environment in which its own tools, and its decider,
	// look for a password. Credentials of a cloud are not among them: they are a machine's,
	// which its programs share.
	Secrets []string
	// Parameter names an election, if the path names something larger.
	Parameter string
	// Hosted says that no server stands for the host, but a part of the record's place.
	Hosted bool
}

// kinds are all stores. For a new one, add an entry here and a file with_NAME.go.
// TestEveryStoreIsListed names the other places that must list it.
var kinds = []kind{
	{Schemes: []string{"file"}, Form: "file:///var/lib/app/election.json"},
	{Schemes: []string{"gs"}, Tag: "no_gcs", Form: "gs://bucket/object", Hosted: true},
	{Schemes: []string{"s3"}, Tag: "no_s3", Form: "s3://bucket/key?region=eu-central-1", Hosted: true},
	{Schemes: []string{"azblob"}, Tag: "no_azblob", Form: "azblob://account/container/blob", Hosted: true},
	{Schemes: []string{"dynamodb"}, Tag: "no_dynamodb", Form: "dynamodb://table/key?region=eu-central-1", Hosted: true},
	{
		Schemes: []string{"nats"}, Tag: "no_nats", Form: "nats://host:4222/bucket/key",
		Secure: []string{"nats://host:4222/bucket/key?tls_ca=ca.pem&tls_cert=me.pem&tls_key=me-key.pem"},
	},
	{
		Schemes: []string{"etcd", "etcds"}, Tag: "no_etcd", Form: "etcd://host:2379/key",
		Secure:  []string{"etcds://host:2379/key?tls_ca=ca.pem&tls_cert=me.pem&tls_key=me-key.pem"},
		Secrets: []string{"ETCDCTL_USER", "ETCDCTL_PASSWORD"},
	},
	{
		Schemes: []string{"redis", "rediss", "redis+unix"}, Tag: "no_redis", Form: "redis://host:6379/0?key=election",
		Secure: []string{
			"rediss://host:6379/0?key=election&tls_ca=ca.pem&tls_cert=me.pem&tls_key=me-key.pem",
			"redis+unix:///run/redis.sock?key=election",
		},
		Secrets: []string{"REDISCLI_AUTH"}, Parameter: "key",
	},
	{
		Schemes: []string{"postgres", "postgresql"}, Tag: "no_postgres", Form: "postgres://user@host:5432/database?election=name",
		Secure:  []string{"postgres://user@host/database?election=name&tls_ca=ca.pem"},
		Secrets: []string{"PGPASSWORD", "PGSSLPASSWORD"}, Parameter: "election",
	},
	{
		Schemes: []string{"mysql", "mariadb"}, Tag: "no_mysql", Form: "mysql://user@host:3306/database?election=name",
		Secure:  []string{"mysql://user@host/database?election=name&tls_ca=ca.pem"},
		Secrets: []string{"MYSQL_PWD"}, Parameter: "election",
	},
	{Schemes: []string{"sqlite"}, Tag: "no_sqlite", Form: "sqlite:///var/lib/app/app.db?election=name", Parameter: "election"},
	{
		Schemes: []string{"mongodb", "mongodb+srv"}, Tag: "no_mongodb", Form: "mongodb://host:27017/database/collection/election",
		Secure: []string{"mongodb://host/database/collection/election?tls_ca=ca.pem"},
	},
	{
		Schemes: []string{"rethinkdb"}, Tag: "no_rethinkdb", Form: "rethinkdb://host:28015/database/table/election",
		Secure: []string{"rethinkdb://host/database/table/election?tls_ca=ca.pem"},
	},
	{Schemes: []string{"kubernetes"}, Tag: "no_kubernetes", Form: "kubernetes://namespace/lease", Hosted: true},
	{
		Schemes: []string{"zookeeper"}, Tag: "no_zookeeper", Form: "zookeeper://host:2181,host:2181/path",
		Secure: []string{"zookeeper://host:2281/path?tls_ca=ca.pem"},
	},
	{
		Schemes: []string{"consul"}, Tag: "no_consul", Form: "consul://host:8500/key",
		Secure:  []string{"consul://host:8501/key?tls_ca=ca.pem"},
		Secrets: []string{"CONSUL_HTTP_TOKEN", "CONSUL_HTTP_AUTH"},
	},
}

// Forms are the URLs that Open takes, one for each store, for help texts. TLS are those for
// connections with TLS, and by a socket.
var Forms, TLS = forms()

func forms() (plain, secure []string) {
	for _, k := range kinds {
		plain, secure = append(plain, k.Form), append(secure, k.Secure...)
	}
	return plain, secure
}

// Tags are the build tags that leave a store out of the program, one for each.
func Tags() (all []string) {
	for _, k := range kinds {
		if k.Tag != "" {
			all = append(all, k.Tag)
		}
	}
	slices.Sort(all)
	return all
}

// Kind is which store a URL, or its scheme alone, names: one word for each.
func Kind(raw string) string {
	if k := kindOf(raw); len(k.Schemes) > 0 {
		return k.Schemes[0]
	}
	scheme, _, _ := strings.Cut(raw, ":")
	return strings.ToLower(scheme)
}

// Secrets are the variables of the environment in which the password of raw's store may be.
func Secrets(raw string) []string { return kindOf(raw).Secrets }

// kindOf is the store that a URL, or its scheme alone, names; a zero one if there is none.
func kindOf(raw string) kind {
	scheme, _, _ := strings.Cut(raw, ":")
	for _, k := range kinds {
		if slices.Contains(k.Schemes, strings.ToLower(scheme)) {
			return k
		}
	}
	return kind{}
}
