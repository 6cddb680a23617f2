// Command ferretdb is a FerretDB, which speaks MongoDB's protocol and keeps its
// data in SQLite, for tests. It is a module of its own, so that nobody who imports
// the library meets the server.
//
//	ferretdb -data DIR [-listen 127.0.0.1:27017]
//
// It prints the address that it serves on as its first line. It keeps its data in
// DIR, so that it can be killed and started again.
//
// FerretDB's updates are not atomic: of two clients that update one document under
// a condition, both may find that it holds. MongoDB's are. So the clients' commands
// are passed on one at a time (see serialise), which gives the tests an atomic
// store; whoever needs FerretDB as it is says -raw.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/FerretDB/FerretDB/ferretdb"
)

func main() {
	log.SetFlags(0)
	if err := run(); err != nil {
		log.Fatal("ferretdb: ", err)
	}
}

func run() error {
	data := flag.String("data", "", "the directory to keep data in")
	listen := flag.String("listen", "127.0.0.1:0", "where to serve clients")
	raw := flag.Bool("raw", false, "pass commands on as they come")
	flag.Parse()
	if *data == "" {
		return fmt.Errorf("-data is missing: the directory to keep data in")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	inner := "127.0.0.1:0"
	if *raw {
		inner = *listen
	}
	db, err := ferretdb.New(&ferretdb.Config{
		Listener:  ferretdb.ListenerConfig{TCP: inner},
		Logger:    slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
		Handler:   "sqlite",
		SQLiteURL: "file:" + strings.TrimSuffix(*data, "/") + "/",
	})
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- db.Run(ctx) }()
	addr := strings.TrimSuffix(strings.TrimPrefix(db.MongoDBURI(), "mongodb://"), "/")
	if !*raw {
		l, err := net.Listen("tcp", *listen)
		if err != nil {
			return err
		}
		go serialise(l, addr)
		addr = l.Addr().String()
	}
	fmt.Println(addr)
	return <-ended
}
