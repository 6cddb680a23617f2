//go:build go1.25

package decidertest_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/record"
)

// webDecider keeps a record at a URL of any HTTP server that gives out ETags and respects If-Match
// and If-None-Match. It is a whole decider.
type webDecider struct {
	client *http.Client
	url    string
}

// etag is the version that a record was read at; empty: there was none.
type etag string

func (etag) CommitTS() time.Time { return time.Time{} } // it does not say

func (d webDecider) ReadCurrent(ctx context.Context) (*leaderelection.RaceEntry, error) {
	body, version, err := d.get(ctx)
	if err != nil || version == "" {
		return &leaderelection.RaceEntry{Token: version}, err // nobody has led yet
	}
	e, err := record.Unmarshal(d.url, body)
	if err != nil {
		return nil, err // what is there is no record: permanent
	}
	e.Token = version
	return e, nil
}

// get returns what is stored, and its version. The version is empty if nothing is stored.
func (d webDecider) get(ctx context.Context) ([]byte, etag, error) {
	resp, err := d.do(ctx, http.MethodGet, "", "")
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	version := etag(resp.Header.Get("ETag"))
	switch {
	case resp.StatusCode == http.StatusNotFound:
		return nil, "", nil
	case resp.StatusCode != http.StatusOK:
		return nil, "", d.failed(resp)
	case version == "":
		return nil, "", fmt.Errorf("%s: the answer has no ETag: something else than the store has answered", d.url)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, record.MaxSize+1))
	return body, version, err
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
	case http.StatusOK, http.StatusCreated, http.StatusNoContent:
		return d.proved(ctx, body)
	case http.StatusPreconditionFailed:
		return nil, &leaderelection.LostRaceError{Place: d.url}
	}
	return nil, d.failed(resp)
}

// proved returns the version of what was written. Only a read shows that it was written: a proxy's
// page may have had the same status. No two records are alike.
func (d webDecider) proved(ctx context.Context, written []byte) (leaderelection.LeaderToken, error) {
	body, version, err := d.get(ctx)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(body, written) {
		return nil, fmt.Errorf("%s: what was written is not there, or not any more", d.url)
	}
	return version, nil
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

// How to write a decider: two methods. TestExampleDecider holds it to the contract.
func Example() {
	server := httptest.NewServer(newWebStore())
	defer server.Close()
	err := leaderelection.Config{
		Decider:  webDecider{server.Client(), server.URL + "/election"},
		LeaderID: "a",
	}.Run(context.Background(), func(_ context.Context, view *leaderelection.TimeView) error {
		fmt.Println("leading with a token:", view.ElectionNumber() > 0)
		return nil
	})
	fmt.Println(err)
	// Output:
	// leading with a token: true
	// <nil>
}
