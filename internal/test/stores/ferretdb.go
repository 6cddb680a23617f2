package stores

import (
	"fmt"
	"testing"
)

// FerretDBServer is a FerretDB: a process that keeps its data and its address when
// it is stopped and started again.
type FerretDBServer struct {
	nested
	// URI is what a MongoDB client connects to.
	URI string
}

// FerretDB starts FerretDB, which speaks MongoDB's protocol, empty. Commands are
// passed on to it one at a time, since its updates are not atomic; with the
// argument -raw as they come.
func FerretDB(t testing.TB, args ...string) *FerretDBServer {
	t.Helper()
	listen := fmt.Sprintf("127.0.0.1:%d", FreePort(t))
	args = append([]string{"-data", t.TempDir(), "-listen", listen}, args...)
	f := &FerretDBServer{nested{server: "ferretdb", args: args}, "mongodb://" + listen + "/"}
	f.Start(t)
	return f
}
