// Command versitygw is a real S3 server on a directory, for tests. It is in a
// module of servers, so that nobody who imports the library meets the server.
//
//	versitygw -data DIR [-versions DIR]
//
// It prints the address that it serves on as its first line, when it serves. Its
// accounts are "root", to whom all is allowed, and "guest", to whom nothing is;
// the secret is the account's name and "-secret".
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

func main() {
	log.SetFlags(0)
	stdout := os.Stdout
	os.Stdout = os.Stderr // the server's own remarks: the first line is ours
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, stdout); err != nil {
		log.Fatal("versitygw: ", err)
	}
}

func run(ctx context.Context, stdout io.Writer) error {
	data := flag.String("data", "", "the directory to keep buckets in")
	versions := flag.String("versions", "", "the directory to keep old versions in; empty: no versioning")
	flag.Parse()
	if *data == "" {
		return errors.New("-data is missing: the directory to keep buckets in")
	}
	buckets, people := filepath.Join(*data, "buckets"), filepath.Join(*data, "iam")
	for _, dir := range []string{buckets, people} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	iam, err := auth.NewInternal(auth.Account{Access: "root", Secret: "root-secret", Role: auth.RoleAdmin}, people)
	if err != nil {
		return err
	}
	err = iam.CreateAccount(auth.Account{Access: "guest", Secret: "guest-secret", Role: auth.RoleUser})
	if err != nil && !errors.Is(err, auth.ErrUserExists) {
		return err
	}
	store, err := posix.New(buckets, meta.XattrMeta{}, posix.PosixOpts{VersioningDir: *versions, Concurrency: 64})
	if err != nil {
		return err
	}
	addr, err := freeAddr()
	if err != nil {
		return err
	}
	go announce(ctx, stdout, addr)
	return embedgw.RunVersityGW(ctx, store, &embedgw.Config{
		RootUserAccess:    "root",
		RootUserSecret:    "root-secret",
		IAMService:        iam,
		Ports:             []string{addr},
		MaxConnections:    1000,
		MaxRequests:       1000,
		MultipartMaxParts: 100,
		KeepAlive:         true,
		Quiet:             true,
	})
}

// freeAddr returns a free address: the server cannot say which port it got.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// announce prints the address when the server accepts connections.
func announce(ctx context.Context, stdout io.Writer, addr string) {
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		if c, err := net.Dial("tcp", addr); err == nil {
			_ = c.Close()
			fmt.Fprintln(stdout, addr)
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
}
