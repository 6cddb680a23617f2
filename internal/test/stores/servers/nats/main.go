// Command nats is a real nats-server, for tests. It is in a module of servers, so that nobody
// who imports the library meets the server.
//
//	nats CONFIG
//
// CONFIG is a file as nats-server takes it. It prints the address that it serves clients on
// as its first line, and goes on until it is killed.
package main

import (
	"fmt"
	"log"
	"os"
	"time"

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
	if s.ReadyForConnections(time.Minute) {
		fmt.Println(s.Addr())
	}
	s.WaitForShutdown()
}
