package stores

import (
	"fmt"
	"testing"
)

// FerretDBServer is a FerretDB: a process that keeps its data and its address when
// it is stopped and started again.
type FerretDBServer struct {
	*Process
	// URI is what a MongoDB client connects to.
	URI string

	args []string
}

// FerretDB starts FerretDB, which speaks MongoDB's protocol, empty. Commands are
// passed on to it one at a time, since its updates are not atomic; with the
// argument -raw as they come.
func FerretDB(t testing.TB, args ...string) *FerretDBServer {
	t.Helper()
	listen := fmt.Sprintf("127.0.0.1:%d", FreePort(t))
	f := &FerretDBServer{URI: "mongodb://" + listen + "/", args: append([]string{"-data", t.TempDir(), "-listen", listen}, args...)}
	f.Start(t)
	return f
}

// Start starts a server that was stopped.
func (f *FerretDBServer) Start(t testing.TB) {
	t.Helper()
	f.Process = Server(t, "ferretdb", f.args...)
}

// Stop kills the server. Start starts it again.
func (f *FerretDBServer) Stop() { f.Process.Stop() }
