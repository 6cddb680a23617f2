// Command kube is a real kube-apiserver, for tests: Kubernetes' API without anything that
// runs pods. It is a module of its own, so that nobody who imports the library meets its
// hundred dependencies.
//
//	kube -data DIR -etcd 127.0.0.1:2379 [-address 127.0.0.1:6443] [-- --watch-cache=false ...]
//
// It keeps its certificate and keys in DIR, and all else in etcd, so that it can be killed
// and started again, and several can share one etcd. What follows the flags is for
// kube-apiserver as it is. It prints the address that it serves on as its first line, when
// it is ready. DIR/api/apiserver.crt is the authority to trust. Permissions are by RBAC,
// and there are three users: token "admin" may do everything, to "candidate" and
// "nobody", of the names, nothing is granted yet.
//
// To build it cold takes two cores five to twelve minutes: build it before the tests that
// need it (make kube).
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
	_ "time/tzdata" // as in kube-apiserver

	_ "k8s.io/component-base/metrics/prometheus/clientgo" // as in kube-apiserver
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

const tokens = `admin,admin,u1,"system:masters"
candidate,candidate,u2
nobody,nobody,u3
`

func main() {
	log.SetFlags(0)
	if err := run(); err != nil {
		log.Fatal("kube: ", err)
	}
}

func run() error {
	data := flag.String("data", "", "the directory to keep certificate and keys in")
	etcd := flag.String("etcd", "", "the etcd that keeps the objects: host and port")
	address := flag.String("address", "127.0.0.1:0", "where to serve")
	flag.Parse()
	if *data == "" || *etcd == "" {
		return errors.New("-data and -etcd are needed: a directory, and the host and port of an etcd")
	}
	host, port, err := free(*address)
	for again := 0; err != nil && again < 100; again++ {
		// One that was killed just now may have the port for a moment yet.
		time.Sleep(50 * time.Millisecond)
		host, port, err = free(*address)
	}
	if err != nil {
		return err
	}
	at := func(name string) string { return filepath.Join(*data, name) }
	if err := os.WriteFile(at("tokens.csv"), []byte(tokens), 0o600); err != nil {
		return err
	}
	if err := makeKey(at("sa.key")); err != nil {
		return err
	}
	cmd := app.NewAPIServerCommand()
	cmd.SetArgs(append([]string{
		"--etcd-servers=http://" + *etcd, "--etcd-compaction-interval=0",
		"--bind-address=" + host, "--advertise-address=" + host, "--secure-port=" + port, "--cert-dir=" + at("api"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + at("sa.key"), "--service-account-signing-key-file=" + at("sa.key"),
		"--service-cluster-ip-range=10.0.0.0/24,fd00:10::/108", "--endpoint-reconciler-type=none",
		"--authorization-mode=RBAC", "--token-auth-file=" + at("tokens.csv"), "--v=0",
	}, flag.Args()...))
	ended := make(chan error, 1)
	go func() { ended <- cmd.Execute() }()
	if err := ready("https://"+net.JoinHostPort(host, port)+"/readyz", ended); err != nil {
		return err
	}
	fmt.Println(net.JoinHostPort(host, port))
	return <-ended
}

// free is address with a port that is free, if it has none.
func free(address string) (host, port string, err error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return "", "", err
	}
	defer l.Close()
	return net.SplitHostPort(l.Addr().String())
}

// makeKey makes the key that signs service accounts' tokens, if there is none.
func makeKey(file string) error {
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

// ready returns when the server says that it is.
func ready(url string, ended <-chan error) error {
	// Its certificate is its own, and it is on loopback.
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	for again := time.NewTicker(50 * time.Millisecond); ; {
		select {
		case err := <-ended:
			return fmt.Errorf("kube-apiserver ended before it was ready: %w", err)
		case <-again.C:
		}
		answer, err := client.Get(url)
		if err != nil {
			continue
		}
		_ = answer.Body.Close()
		if answer.StatusCode == http.StatusOK {
			return nil
		}
	}
}
