//go:build go1.25

package dynamo_test

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/dynamo"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/httpfault"
)

func open(t *testing.T, address string) (*dynamo.Decider, error) {
	t.Helper()
	return feedtest.Open(t.Context(), dynamo.Open, address)
}

func openByURL(t *testing.T, endpoint string) {
	stores.AWSAlone(t, "key", "secret")
	at := "&endpoint=" + url.QueryEscape(endpoint)
	one, err := open(t, "dynamodb://opened/team/one%20%2F%C3%BC?region=eu-central-1&partition_key=PK&sort_key=SK&sort_value=x&create=true"+at)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := one.WriteEntry(t.Context(), &first); err != nil {
		t.Fatal(err)
	}
	same := dynamo.NewDecider(newClient(t, endpoint), "opened", "team/one /ü", &dynamo.Options{PartitionKey: "PK", SortKey: "SK", SortValue: "x"})
	if e, err := same.ReadCurrent(t.Context()); err != nil || e.LeaderID != "a" {
		t.Errorf("ReadCurrent of the same = %+v, %v", e, err)
	}
	if _, err := open(t, "dynamodb://opened/two?region=eu-central-1&partition_key=PK&sort_key=SK&verify=true"+at); err != nil {
		t.Errorf("verified: %v", err)
	}
	if _, err := open(t, "dynamodb://opened/two?region=eu-central-1&verify=true"+at); !errors.Is(err, leaderelection.ErrPermanent) {
		t.Errorf("verified with the wrong keys: %v, want an error that wraps ErrPermanent", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	stores.AWSAlone(t, "key", "secret")
	feedtest.OpenRefuses(t, dynamo.Open, map[string]string{
		"s3://elections/one":                               "scheme",
		"dynamodb://key:s3cret@elections/one":              "credentials",
		"dynamodb://elections/one#two":                     "%23",
		"dynamodb://elections/one?regoin=x":                `"regoin"`,
		"dynamodb://elections/one?region=x&region=y":       "2 times",
		"dynamodb://elections/one?create=perhaps":          "true or false",
		"dynamodb://elections/one?endpoint=localhost:8000": "http://",
		"dynamodb://elections?region=eu-central-1":         "1 to 2048",
		"dynamodb:///one?region=eu-central-1":              "table name",
		"dynamodb://el/one?region=eu-central-1":            "table name",
		"dynamodb://elections/one?region=x&sort_value=y":   "SortKey",
		"dynamodb:elections/one":                           "dynamodb://",
		"dynamodb://elections/one?region=x;y":              "semicolon",
	})
	_, err := open(t, "dynamodb://elections/one?profile=nobody&region=here")
	feedtest.Says(t, err, "nobody")
	if _, err := open(t, "dynamodb://elections/one"); err != nil {
		t.Errorf("without a region, which the first call reports: %v", err)
	}
}

// A table is named by its ARN, also in a URL, which says the region as well.
func TestTableARN(t *testing.T) {
	stores.AWSAlone(t, "key", "secret")
	const arn = "arn:aws:dynamodb:eu-central-1:123456789012:table/elections"
	var body, signed string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		body, signed = string(b), r.Header.Get("Authorization")
	}))
	defer server.Close()
	for region, want := range map[string]string{"": "eu-central-1", "&region=eu-west-1": "eu-west-1"} {
		d, err := open(t, "dynamodb:///team/one?table="+arn+region+"&endpoint="+url.QueryEscape(server.URL))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = d.ReadCurrent(t.Context())
		if !strings.Contains(body, `"TableName":"`+arn+`"`) || !strings.Contains(body, `"S":"team/one"`) || !strings.Contains(signed, "/"+want+"/dynamodb/") {
			t.Errorf("%q is sent as %s, signed %s", region, body, signed)
		}
		if !strings.Contains(d.String(), arn) {
			t.Errorf("the place is %s", d)
		}
	}
	for address, says := range map[string]string{
		"dynamodb:///one?table=elections":                                          "an ARN such as arn:aws:dynamodb:",
		"dynamodb:///one?table=arn:aws:s3:eu-central-1:123456789012:table/x":       "an ARN such as arn:aws:dynamodb:",
		"dynamodb://elections/one?table=" + arn:                                    "leave one of them out",
		"dynamodb:///one?table=arn:aws:dynamodb:eu-central-1:123456789012:index/x": "not a table name",
		"dynamodb:///one?region=eu-central-1":                                      "not a table name",
	} {
		if _, err := open(t, address); !errors.Is(err, leaderelection.ErrPermanent) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want a permanent error that says %q", address, err, says)
		}
	}
}

// The shared credentials file is written again, and the server does not take the old credentials any
// more: the next call has the new ones, whatever the server says of the old ones.
func TestRenewedCredentials(t *testing.T) {
	stores.AWSAlone(t, "", "")
	file := filepath.Join(t.TempDir(), "credentials")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
	renew := func(key string) {
		text := fmt.Sprintf("[default]\naws_access_key_id = %s\naws_secret_access_key = s\naws_session_token = t\n", key)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, code := range []string{"ExpiredTokenException", "UnrecognizedClientException", "InvalidSignatureException"} {
		valid := "FIRST"
		renew(valid)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.Header.Get("Authorization"), "Credential="+valid+"/") {
				w.Header().Set("X-Amzn-Requestid", "0")
				w.Header().Set("X-Amz-Crc32", fmt.Sprint(crc32.ChecksumIEEE([]byte("{}"))))
				_, _ = w.Write([]byte("{}"))
				return
			}
			w.Header().Set("X-Amzn-Requestid", "0")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(`{"__type":"com.amazon.coral.service#` + code + `","message":"said the server"}`))
		}))
		d, err := open(t, "dynamodb://elections/one?region=x&endpoint="+url.QueryEscape(server.URL))
		if err != nil {
			t.Fatal(err)
		}
		feedtest.Read(t, d)
		valid = "SECOND"
		if _, err := d.ReadCurrent(t.Context()); err == nil {
			t.Fatalf("%s: the old credentials are accepted", code)
		}
		renew(valid)
		if _, err := d.ReadCurrent(t.Context()); err != nil {
			t.Errorf("%s: with the new credentials in the file: %v", code, err)
		}
		server.Close()
	}
}

// replicate is what an eventually consistent global table does in time: it writes this region's
// items over the other region's, without a condition.
func (f *fake) replicate(to *fake) {
	f.mu.Lock()
	defer f.mu.Unlock()
	to.mu.Lock()
	defer to.mu.Unlock()
	for name, table := range f.tables {
		maps.Copy(to.tables[name].items, table.items)
	}
}

// Two regions of such a table elect a leader each, and nothing in their answers shows it: that is
// what Durability is for. When a region's item has been replaced its leader has lost the race.
func TestRegionsElectALeaderEach(t *testing.T) {
	here, there := newFake("key"), newFake("key")
	a := dynamo.NewDecider(reach(t, here), "elections", "one", nil)
	b := dynamo.NewDecider(reach(t, there), "elections", "one", nil)
	mine, yours := first, first
	mine.LeaderID, mine.Incarnation = "a", "a"
	yours.LeaderID, yours.Incarnation = "b", "b"
	token, err := a.WriteEntry(t.Context(), &mine)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.WriteEntry(t.Context(), &yours); err != nil {
		t.Fatal(err)
	}
	there.replicate(here) // the last writer wins
	mine.Token = token
	mine.Extension++
	_, err = a.WriteEntry(t.Context(), &mine)
	var lost *leaderelection.LostRaceError
	if !errors.As(err, &lost) || lost.Current == nil || lost.Current.LeaderID != "b" {
		t.Errorf("a's extension over b's record: %v", err)
	}
}

// dax is a client of a DAX cluster, as of a table: what is set for one request of DynamoDB's own
// client means nothing to it, and it answers reads from its cache unless they are strongly
// consistent.
type dax struct {
	*dynamodb.Client
	t testing.TB
}

func (d dax) Options() struct{} { return struct{}{} } // it has none of a *dynamodb.Client's

func (d dax) GetItem(ctx context.Context, in *dynamodb.GetItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	if in.ConsistentRead == nil || !*in.ConsistentRead {
		d.t.Error("a read that the cache answers")
	}
	return d.Client.GetItem(ctx, in)
}

func (d dax) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	in.ReturnValuesOnConditionCheckFailure = "" // which not every version of its client knows
	return d.Client.UpdateItem(ctx, in)
}

// Through DAX an election is sound, since it passes on what is conditional or consistent: but
// nothing then proves that DynamoDB answered.
func TestThroughDAX(t *testing.T) {
	decidertest.Run(t, func(t testing.TB) func() leaderelection.RaceDecider {
		h := &http.Client{Transport: &httpfault.Transport{Handler: newFake("key")}}
		return func() leaderelection.RaceDecider {
			return dynamo.NewDecider(dax{inProcess(t, h), t}, "elections", "one", nil)
		}
	}, nil)
}

// A table takes longer to be created than one call may take: the calls meanwhile
// fail with errors that pass, and one table is created.
func TestTableIsCreated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFake("key")
		server.making = 9 * time.Second
		var mu sync.Mutex
		var elected []time.Duration
		began := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for _, id := range []string{"a", "b"} {
			c := leaderelection.Config{
				Decider:  dynamo.NewDecider(reach(t, server), "new-elections", "one", &dynamo.Options{SortKey: "sort", CreateTable: true}),
				LeaderID: id, MaxClockSkew: time.Second,
				OnElected: func(ctx context.Context, _ *leaderelection.TimeView) {
					mu.Lock()
					elected = append(elected, time.Since(began))
					mu.Unlock()
					<-ctx.Done()
				},
			}
			wg.Go(func() {
				if err := c.Acquire(ctx); !errors.Is(err, context.Canceled) {
					t.Errorf("%s: %v", id, err)
				}
			})
		}
		time.Sleep(time.Minute)
		mu.Lock()
		if len(elected) != 1 || elected[0] < server.making || elected[0] > server.making+10*time.Second {
			t.Errorf("elected after %v, the table was there after %v", elected, server.making)
		}
		mu.Unlock()
		cancel()
		wg.Wait()
		if keys := server.tables["new-elections"].keys; strings.Join(keys, " ") != "key sort" {
			t.Errorf("keys %v", keys)
		}
	})
}

// Without the permission to create tables, that is what is said.
func TestTableCannotBeCreated(t *testing.T) {
	server := newFake("key")
	tr := &httpfault.Transport{Handler: server, Fault: func(r *http.Request) httpfault.Fault {
		if strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".CreateTable") {
			return refusal(http.StatusBadRequest, "AccessDeniedException")
		}
		return httpfault.Fault{}
	}}
	feedtest.Refuses(t, dynamo.NewDecider(inProcess(t, &http.Client{Transport: tr}), "new-elections", "one", &dynamo.Options{CreateTable: true}), "creating the table", "permission")
}

// A global table is fit only if its regions are strongly consistent; doctor hears of it, too.
func TestGlobalTables(t *testing.T) {
	for more, fit := range map[string]bool{
		``: true,
		`,"Replicas":[{"RegionName":"eu-west-1"}],"GlobalTableVersion":"2019.11.21","MultiRegionConsistency":"STRONG"`:   true,
		`,"Replicas":[{"RegionName":"eu-west-1"}],"GlobalTableVersion":"2019.11.21","MultiRegionConsistency":"EVENTUAL"`: false,
		`,"Replicas":[{"RegionName":"eu-west-1"}]`: false,
		`,"GlobalTableVersion":"2017.11.29"`:       false, // whose DescribeTable lists no replicas
	} {
		body := `{"Table":{"TableName":"elections","TableStatus":"ACTIVE",
			"KeySchema":[{"AttributeName":"key","KeyType":"HASH"}],"AttributeDefinitions":[{"AttributeName":"key","AttributeType":"S"}]` + more + `}}`
		d := answering(t, httpfault.Fault{Status: 200, Header: proof([]byte(body)), Body: body})
		err := d.VerifyTable(t.Context())
		if fit != (err == nil) || !fit && (!errors.Is(err, leaderelection.ErrPermanent) || !strings.Contains(err.Error(), "global table")) {
			t.Errorf("%q: VerifyTable = %v", more, err)
		}
		warnings, err := d.Durability(t.Context())
		if err != nil || fit != (len(warnings) == 0) || !fit && !strings.Contains(warnings[0].String(), "another region leads as well") {
			t.Errorf("%q: Durability = %v, %v", more, warnings, err)
		}
	}
	if _, err := answering(t, refusal(http.StatusBadRequest, "AccessDeniedException")).Durability(t.Context()); err == nil || !strings.Contains(err.Error(), "examining") {
		t.Errorf("Durability without the permission: %v", err)
	}
}
