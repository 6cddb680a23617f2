// Command etcd is one member of a real etcd cluster, for tests. It is in a module
// of servers, so that nobody who imports the library meets the server.
//
//	etcd -data DIR                         one member is the whole cluster
//	etcd -data DIR -name b -peer 127.0.0.1:2381 \
//	     -cluster a=http://127.0.0.1:2380,b=http://127.0.0.1:2381,c=...
//
// It prints the address that it serves clients on as its first line: when it
// serves them, or with other members as soon as it listens, since it serves only
// when most of them are up. It keeps its data in DIR, so that it can be killed and
// started again.
package main

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"net/url"
	"os"
	"os/signal"
	"syscall"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
)

func main() {
	log.SetFlags(0)
	if err := run(); err != nil {
		log.Fatal("etcd: ", err)
	}
}

func run() error {
	var (
		data    = flag.String("data", "", "the directory to keep data in")
		name    = flag.String("name", "a", "the member's name")
		client  = flag.String("client", "127.0.0.1:0", "where to serve clients")
		peer    = flag.String("peer", "127.0.0.1:0", "where to serve other members")
		cluster = flag.String("cluster", "", "all members, as name=http://host:port,...; empty: this one alone")
		cert    = flag.String("cert", "", "certificate file to serve clients with; empty: no TLS")
		key     = flag.String("key", "", "the certificate's key file")
		cacert  = flag.String("cacert", "", "file of authorities; clients need a certificate of one of them")
		fsync   = flag.Bool("fsync", false, "wait for the disk; without, what was written outlasts the process, but not the machine")
	)
	flag.Parse()
	if *data == "" {
		return errors.New("-data is missing: the directory to keep data in")
	}

	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir = *name, *data
	cfg.UnsafeNoFsync = !*fsync
	cfg.LogLevel, cfg.LogOutputs = "warn", []string{"stderr"}
	scheme := "http"
	if *cert != "" {
		scheme = "https"
		cfg.ClientTLSInfo = transport.TLSInfo{CertFile: *cert, KeyFile: *key, TrustedCAFile: *cacert, ClientCertAuth: *cacert != ""}
	}
	clients, peers := url.URL{Scheme: scheme, Host: *client}, url.URL{Scheme: "http", Host: *peer}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{clients}, []url.URL{clients}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peers}, []url.URL{peers}
	cfg.InitialCluster = *cluster
	if *cluster == "" {
		cfg.InitialCluster = cfg.InitialClusterFromName(*name)
	}

	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return err
	}
	defer e.Close()
	if *cluster == "" {
		select {
		case <-e.Server.ReadyNotify():
		case err := <-e.Err():
			return err
		}
	}
	fmt.Println(e.Clients[0].Addr())

	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	select {
	case <-stop:
		return nil
	case err := <-e.Err():
		return err
	}
}
