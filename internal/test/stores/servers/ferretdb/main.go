// Command ferretdb is a FerretDB, which speaks MongoDB's protocol and keeps its
// data in SQLite, for tests. It is a module of its own, so that nobody who imports
// the library meets the server.
//
//	ferretdb -data DIR [-listen 127.0.0.1:27017] [-raw] [-tls-cert FILE -tls-key FILE -tls-ca FILE]
//
// It prints the address that it serves on as its first line. It keeps its data in
// DIR, so that it can be killed and started again.
//
// FerretDB's updates are not atomic: of two clients that update one document under
// a condition, both may find that it holds. MongoDB's are. So the clients' commands
// are passed on one at a time (see serialise), which gives the tests an atomic
// store; whoever needs FerretDB as it is says -raw. With a certificate it speaks TLS, is
// as it is, too, and with an authority it demands a client's certificate.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/url"
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
	var l ferretdb.ListenerConfig
	flag.StringVar(&l.TLSCertFile, "tls-cert", "", "the server's certificate, PEM: to speak TLS")
	flag.StringVar(&l.TLSKeyFile, "tls-key", "", "its key, PEM")
	flag.StringVar(&l.TLSCAFile, "tls-ca", "", "the authority of the clients' certificates, PEM")
	flag.Parse()
	if *data == "" {
		return fmt.Errorf("-data is missing: the directory to keep data in")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	switch {
	case l.TLSCertFile != "":
		*raw = true
		l.TLS = *listen
	case *raw:
		l.TCP = *listen
	default:
		l.TCP = "127.0.0.1:0"
	}
	db, err := ferretdb.New(&ferretdb.Config{
		Listener:  l,
		Logger:    slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
		Handler:   "sqlite",
		SQLiteURL: "file:" + strings.TrimSuffix(*data, "/") + "/",
	})
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- db.Run(ctx) }()
	u, err := url.Parse(db.MongoDBURI())
	if err != nil {
		return err
	}
	addr := u.Host
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
