package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"regexp"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/natskv"
	"github.com/c8e606e4/leaderelection/internal/stores/natstest"
)

func TestObserve(t *testing.T) {
	s := natstest.Start(t)
	js := s.JetStream(t)
	election := natskv.NewDecider(js, "elections", "billing", &natskv.Options{Create: &jetstream.KeyValueConfig{}})
	lead := func(number leaderelection.ElectionNumber, extension uint64, id, successor string) {
		e, err := election.ReadCurrent(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = election.WriteEntry(t.Context(), &leaderelection.RaceEntry{LeaderID: id, ElectionNumber: number, Extension: extension, Successor: successor,
			TermExpiry: time.Now().Add(300 * time.Millisecond), TermLength: 300 * time.Millisecond, Incarnation: id, Token: e.Token})
		if err != nil {
			t.Fatal(err)
		}
	}
	lead(1, 0, "ada", "")

	out, print := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	returned := make(chan error, 1)
	go func() {
		returned <- observe(ctx, s.ClientURL()+"/elections/billing", print)
		print.Close()
	}()
	said := bufio.NewScanner(out)
	expect := func(want string) {
		t.Helper()
		if !said.Scan() || !regexp.MustCompile(want).MatchString(said.Text()) {
			t.Fatalf("%q, want %q", said.Text(), want)
		}
	}
	expect(`^ada leads with election 1 until \d\d:\d\d:\d\d`)
	lead(1, 1, "ada", "bob")
	expect(`^ada is asked to hand over to "bob"`)
	lead(1, 2, "", "bob")
	expect(`^election 1 was given up`)
	lead(2, 0, "bob", "")
	expect(`^bob leads with election 2 until`)
	expect(`^bob has not extended its term`)

	cancel()
	if err := <-returned; !errors.Is(err, context.Canceled) {
		t.Errorf("observe = %v", err)
	}
	if said.Scan() {
		t.Errorf("it says more: %q", said.Text())
	}
	if err := observe(t.Context(), "redis://127.0.0.1/0/k", io.Discard); err == nil {
		t.Error("a URL that is not NATS's is taken")
	}
}
