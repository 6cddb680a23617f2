package fence_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

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
	// 409 fence: stale token orders:1: 2 has been seen
}

// What must not overlap with the next leader's acts runs inside Do.
func ExampleGuard_Do() {
	guard := fence.NewGuard("orders", 0)
	leader, next := fence.Token{Election: "orders", Number: 1}, fence.Token{Election: "orders", Number: 2}
	act := func() error { fmt.Println("acting"); return nil }
	fmt.Println(guard.Do(leader, act))
	fmt.Println(guard.Do(next, act))
	fmt.Println(guard.Do(leader, act))
	// Output:
	// acting
	// <nil>
	// acting
	// <nil>
	// fence: stale token orders:1: 2 has been seen
}
