//go:build go1.25

package leaderelection_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/record"
)

// webDecider keeps an election at a URL of any HTTP server that gives out ETags
// and heeds If-Match and If-None-Match: a whole decider.
type webDecider struct {
	client *http.Client
	url    string
}

// etag is the version that a record was read at; empty: there was none.
type etag string

func (etag) CommitTS() time.Time { return time.Time{} } // it does not say

func (d webDecider) ReadCurrent(ctx context.Context) (*leaderelection.RaceEntry, error) {
	resp, err := d.do(ctx, http.MethodGet, "", "")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	e := &leaderelection.RaceEntry{Token: etag("")}
	switch resp.StatusCode {
	case http.StatusNotFound:
		return e, nil // nobody has led yet
	case http.StatusOK:
		body, err := io.ReadAll(io.LimitReader(resp.Body, record.MaxSize+1))
		if err != nil {
			return nil, err
		}
		if e, err = record.Unmarshal(d.url, body); err != nil {
			return nil, err // what is there is no record: permanent
		}
		e.Token = etag(resp.Header.Get("ETag"))
		return e, nil
	}
	return nil, d.failed(resp)
}

func (d webDecider) WriteEntry(ctx context.Context, e *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
	body, err := record.Marshal(e)
	if err != nil {
		return nil, err
	}
	version, ours := e.Token.(etag)
	if e.Token != nil && !ours {
		return nil, fmt.Errorf("a token of another store, %T (%w)", e.Token, leaderelection.ErrPermanent)
	}
	resp, err := d.do(ctx, http.MethodPut, string(version), string(body))
	if err != nil {
		return nil, err // it may have happened: the campaign will read
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK, http.StatusCreated:
		return etag(resp.Header.Get("ETag")), nil
	case http.StatusPreconditionFailed:
		return nil, &leaderelection.LostRaceError{Place: d.url}
	}
	return nil, d.failed(resp)
}

func (d webDecider) do(ctx context.Context, method, version, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, d.url, strings.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%w (%w)", err, leaderelection.ErrPermanent)
	}
	if version != "" {
		req.Header.Set("If-Match", version)
	} else if method == http.MethodPut {
		req.Header.Set("If-None-Match", "*")
	}
	return d.client.Do(req)
}

func (d webDecider) failed(resp *http.Response) error {
	if resp.StatusCode == http.StatusForbidden {
		return fmt.Errorf("%s: %s (%w)", d.url, resp.Status, leaderelection.ErrPermanent)
	}
	return fmt.Errorf("%s: %s", d.url, resp.Status)
}

// How to write a decider: two methods, and the conformance suite to be sure of
// them.
func Example_writeADecider() {
	server := httptest.NewServer(newWebStore())
	defer server.Close()
	err := leaderelection.Config{
		Decider:  webDecider{server.Client(), server.URL + "/election"},
		LeaderID: "a",
	}.Run(context.Background(), func(_ context.Context, view *leaderelection.TimeView) error {
		fmt.Println("leading with token", view.ElectionNumber())
		return nil
	})
	fmt.Println(err)
	// Output:
	// leading with token 1
	// <nil>
}

// The example keeps the contract.
func TestExampleDecider(t *testing.T) {
	server := httptest.NewServer(newWebStore())
	defer server.Close()
	n := 0
	decidertest.Options{Rounds: 3, Writers: 8, CreateRounds: 3}.Run(t, func(testing.TB) func() leaderelection.RaceDecider {
		n++
		url := fmt.Sprintf("%s/%d", server.URL, n)
		return func() leaderelection.RaceDecider { return webDecider{server.Client(), url} }
	})
}
