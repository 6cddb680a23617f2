// Command nats is a real nats-server, for tests. It is a module of its own, so that nobody
// who imports the library meets the server.
//
//	nats CONFIG
//
// CONFIG is a file as nats-server takes it.
package main

import (
	"log"
	"os"

	"github.com/nats-io/nats-server/v2/server"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: nats CONFIG")
	}
	o, err := server.ProcessConfigFile(os.Args[1])
	if err != nil {
		log.Fatal("nats: ", err)
	}
	s, err := server.NewServer(o)
	if err != nil {
		log.Fatal("nats: ", err)
	}
	s.ConfigureLogger()
	s.Start()
	s.WaitForShutdown()
}
