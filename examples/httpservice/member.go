package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/file"
	"github.com/c8e606e4/leaderelection/lehttp"
)

// How a member's process is told what it is: these are set for it.
const (
	envName   = "LEADERELECTION_HTTPSERVICE_MEMBER"
	envRecord = "LEADERELECTION_HTTPSERVICE_RECORD"
)

// serve is one member of the service: a candidate, and an HTTP server that serves
// while it leads.
func serve(name string) int {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	campaign, err := le.Config{
		Decider:      file.NewDecider(os.Getenv(envRecord), nil),
		LeaderID:     name,
		HostPort:     []string{listener.Addr().String()},
		TermLength:   term,
		MaxClockSkew: skew,
	}.Start(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	app := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		fmt.Fprintln(w, uint64(le.ViewFrom(r.Context()).ElectionNumber()), name)
	})
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadByte() // it ends when whoever started this is gone
		cancel()
	}()
	// RequireLeader asks the view before the app is called, and again before its
	// answer leaves. Without it, a member that was frozen or cut off from the
	// record would go on answering.
	server := &http.Server{ReadHeaderTimeout: patience, Handler: lehttp.RequireLeader(campaign, nil)(app)}
	if err := lehttp.Serve(ctx, campaign, server, listener, nil); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// member is a member's process.
type member struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser // kept open as long as it is to live
}

// spawn runs this program again, as a member.
func spawn(name, record string) (*member, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	m := &member{cmd: exec.Command(self)}
	m.cmd.Env = append(os.Environ(), envName+"="+name, envRecord+"="+record)
	m.cmd.Stderr = os.Stderr
	if m.stdin, err = m.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := m.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	return m, nil
}

// kill ends it at once, and waits until it is gone.
func (m *member) kill() {
	_ = m.cmd.Process.Kill()
	_ = m.cmd.Wait()
}
