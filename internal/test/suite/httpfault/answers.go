package httpfault

import (
	"net/http"
	"testing"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// OfOthers are answers in which something on the way speaks of itself, with these statuses,
// too.
func OfOthers(statuses ...int) (all []Fault) {
	for _, status := range append(statuses, 301, 308, 400, 401, 403, 404, 405, 410, 500, 501, 502) {
		for _, body := range []string{"", "<html>no", "<html><head><title>No</title></head><body>no</body></html>", `{"message":"Forbidden"}`} {
			all = append(all, Fault{Status: status, Body: body})
		}
	}
	return all
}

// SpoiltAnswers fails the test where an answer that was spoilt on its way is not tried
// again, but taken for a record that is not ours, or for success.
func SpoiltAnswers(t *testing.T, server http.Handler, decider func(*http.Client) leaderelection.RaceDecider) {
	t.Helper()
	var f Fault
	d := decider(&http.Client{Transport: &Transport{Handler: server, Fault: func(*http.Request) Fault { return f }}})
	feedtest.Write(t, d, 1, nil)
	portal := Fault{Status: http.StatusOK, Body: "<html>log in to the network"}
	for _, f = range []Fault{{Garble: true}, {Truncate: true}, portal} {
		_, err := d.ReadCurrent(t.Context())
		feedtest.Passing(t, err)
	}
	_, err := d.WriteEntry(t.Context(), feedtest.State(2, nil))
	feedtest.Passing(t, err)
}
