package fence_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/fence"
)

// A resource that refuses the writes of a deposed leader.
func Example() {
	guard := fence.NewGuard("orders", 0)
	resource := fence.Require(guard, nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "written")
	}))
	write := func(token string) {
		r := httptest.NewRequest(http.MethodPut, "/orders/7", nil)
		r.Header.Set(fence.Header, token) // a fence.Transport does this
		w := httptest.NewRecorder()
		resource.ServeHTTP(w, r)
		text, _ := io.ReadAll(w.Body)
		fmt.Print(w.Code, " ", string(text))
	}
	write("orders:1") // the first leader
	write("orders:2") // the second
	write("orders:1") // the first again: it was stopped for longer than its term
	// Output:
	// 200 written
	// 200 written
	// 409 fence: stale token orders:1: 2 has been seen. If this process leads, the election's record was set back: run leaderelect reset --after 2
}

// What must not overlap with the next leader's acts runs inside Do.
func ExampleGuard_Do() {
	ctx := context.Background()
	guard := fence.NewGuard("orders", 0)
	leader, next := fence.Token{Election: "orders", Number: 1}, fence.Token{Election: "orders", Number: 2}
	act := func(context.Context) error { fmt.Println("acting"); return nil }
	fmt.Println(guard.Do(ctx, leader, act))
	fmt.Println(guard.Do(ctx, next, act))
	fmt.Println(guard.Do(ctx, leader, act))
	// Output:
	// acting
	// <nil>
	// acting
	// <nil>
	// fence: stale token orders:1: 2 has been seen. If this process leads, the election's record was set back: run leaderelect reset --after 2
}

// A leader that writes through a Transport: its requests carry its token, and after
// its leadership nothing leaves any more.
func ExampleTransport() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("the resource sees", r.Header.Get(fence.Header))
	}))
	defer server.Close()
	client := &http.Client{Transport: &fence.Transport{Base: server.Client().Transport}}
	write := func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodPut, server.URL, nil)
		if err != nil {
			return err
		}
		res, err := client.Do(r)
		if err != nil {
			return errors.Unwrap(err) // without the URL, whose port is another each time
		}
		return res.Body.Close()
	}

	election := memory.NewDecider()
	election.Replace(&leaderelection.RaceEntry{ElectionNumber: 41}) // others have led before
	var leader context.Context
	err := leaderelection.Config{Decider: election, LeaderID: "web-1"}.Run(context.Background(),
		func(ctx context.Context, view *leaderelection.TimeView) error {
			leader = fence.WithGate(context.WithoutCancel(ctx), fence.Gate{View: view, Election: "orders"})
			return write(leader)
		})
	fmt.Println(err)
	fmt.Println(write(leader)) // left over from a leadership that is over
	// Output:
	// the resource sees orders:42
	// <nil>
	// fence: not sent: leaderelection: this process does not lead (token 42 of "orders")
}

func ExampleParseToken() {
	token, err := fence.ParseToken("orders:7")
	fmt.Println(token.Election, token.Number, err)
	_, err = fence.ParseToken("orders:7, orders:8")
	fmt.Println(err)
	// Output:
	// orders 7 <nil>
	// fence: malformed token "orders:7, orders:8": the election is not escaped as in a URL's path
}
