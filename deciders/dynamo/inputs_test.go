//go:build go1.25

package dynamo_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/dynamo"
	"github.com/c8e606e4/leaderelection/deciders/internal/awstest"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/httpfault"
)

// makeTable creates a table with these keys, name and type each.
func makeTable(t testing.TB, client *dynamodb.Client, name string, keys ...string) {
	t.Helper()
	in := &dynamodb.CreateTableInput{TableName: &name, BillingMode: types.BillingModePayPerRequest}
	for i, k := range keys {
		attribute, kind, _ := strings.Cut(k, ":")
		in.KeySchema = append(in.KeySchema, types.KeySchemaElement{AttributeName: &attribute, KeyType: []types.KeyType{types.KeyTypeHash, types.KeyTypeRange}[i]})
		in.AttributeDefinitions = append(in.AttributeDefinitions, types.AttributeDefinition{AttributeName: &attribute, AttributeType: types.ScalarAttributeType(kind)})
	}
	if _, err := client.CreateTable(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	soon := func(o *dynamodb.TableExistsWaiterOptions) { o.MinDelay, o.MaxDelay = 50*time.Millisecond, time.Second }
	if err := dynamodb.NewTableExistsWaiter(client, soon).Wait(t.Context(), &dynamodb.DescribeTableInput{TableName: &name}, time.Minute); err != nil {
		t.Fatal(err)
	}
}

type attributes = map[string]types.AttributeValue

func str(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func itemThatIsNotOurs(t *testing.T, endpoint string) {
	const whole = `{"leaderelection":1,"leader_id":"a","term_expiry":"2026-11-21T11:24:05Z","term_length":"15s","election_number":7,"extension":12,"incarnation":"i"}`
	client := newClient(t, endpoint)
	table := "shared"
	makeTable(t, client, table, "key:S")
	for name, item := range map[string]attributes{
		"Other":         {"name": str("somebody's")},
		"KeyAlone":      {},
		"NoVersion":     {"record": str(whole)},
		"NoRecord":      {"version": str("7.12.x")},
		"RecordNumber":  {"record": &types.AttributeValueMemberN{Value: "1"}, "version": str("7.12.x")},
		"VersionNumber": {"record": str(whole), "version": &types.AttributeValueMemberN{Value: "7"}},
		"Text":          {"record": str("hello"), "version": str("7.12.x")},
		"Truncated":     {"record": str(whole[:len(whole)/2]), "version": str("7.12.x")},
		"NewerFormat":   {"record": str(strings.Replace(whole, `n":1`, `n":2`, 1)), "version": str("7.12.x")},
		"UnknownField":  {"record": str(strings.Replace(whole, "{", `{"must_understand":["lock"],"lock":true,`, 1)), "version": str("7.12.x")},
		"MoreOfIt":      {"record": str(whole), "version": str("7.12.x"), "owner": str("me")},
		"Expiry":        {"record": str(whole), "version": str("7.12.x"), "ttl": &types.AttributeValueMemberN{Value: "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			item = maps.Clone(item)
			item["key"] = str(name)
			if _, err := client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &table, Item: item}); err != nil {
				t.Fatal(err)
			}
			feedtest.Foreign(t, dynamo.NewDecider(client, table, name, nil), table, name)
			out, err := client.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: &table, Key: attributes{"key": str(name)}})
			if err != nil || !reflect.DeepEqual(out.Item, item) {
				t.Errorf("the item is now %v, %v", out.Item, err)
			}
		})
	}
}

// What is written has the key, the record and the version, all strings: nothing
// by which DynamoDB would let the item expire.
func whatIsWritten(t *testing.T, endpoint string) {
	client := newClient(t, endpoint)
	table := "written"
	makeTable(t, client, table, "PK:S", "SK:S")
	d := dynamo.NewDecider(client, table, "one", &dynamo.Options{PartitionKey: "PK", SortKey: "SK"})
	e := feedtest.State(7, nil)
	e.LeaderID, e.HostPort = "worker-1.batch.example.com", []string{"10.20.30.40:8443", "[fd00:1234:5678::40]:8443"}
	e.Extension, e.Incarnation = 12, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	if _, err := d.WriteEntry(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	key := attributes{"PK": str("one"), "SK": str("leaderelection")}
	out, err := client.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: &table, Key: key})
	if err != nil || len(out.Item) != 4 {
		t.Fatalf("%v, %v, want the keys and two attributes", out.Item, err)
	}
	size := 0
	for name, value := range out.Item {
		s, ok := value.(*types.AttributeValueMemberS)
		if !ok {
			t.Fatalf("attribute %s is a %T", name, value)
		}
		size += len(name) + len(s.Value)
	}
	if v := out.Item["version"].(*types.AttributeValueMemberS).Value; !strings.HasPrefix(v, "7.12.") {
		t.Errorf("version %q", v)
	}
	if size > 600 {
		t.Errorf("the item has %d bytes, more than 600", size)
	}
}

func wrongPlace(t *testing.T, endpoint string) {
	client := newClient(t, endpoint)
	missing := dynamo.NewDecider(client, "no-such-table", "one", nil)
	feedtest.Refuses(t, missing, `"no-such-table"`, `"one"`, "eu-central-1", "create it")
	feedtest.EndsCampaign(t, missing)

	makeTable(t, client, "by-id", "id:S")
	makeTable(t, client, "by-number", "key:N")
	makeTable(t, client, "sorted", "key:S", "sort:S")
	for _, table := range []string{"by-id", "by-number", "sorted"} {
		d := dynamo.NewDecider(client, table, "one", nil)
		feedtest.Refuses(t, d, table, "PartitionKey", "SortKey")
		feedtest.Permanent(t, d.VerifyTable(t.Context()), table)
	}
	d := dynamo.NewDecider(client, "by-id", "one", &dynamo.Options{PartitionKey: "id", SortKey: "sort"})
	feedtest.Permanent(t, feedtest.ReadError(t, d), "SortKey") // which the table does not have
	feedtest.EndsCampaign(t, d)
	for _, fit := range []*dynamo.Decider{
		dynamo.NewDecider(client, "by-id", "one", &dynamo.Options{PartitionKey: "id"}),
		dynamo.NewDecider(client, "sorted", "one", &dynamo.Options{SortKey: "sort"}),
	} {
		if err := fit.VerifyTable(t.Context()); err != nil {
			t.Error(err)
		}
	}
	feedtest.Permanent(t, missing.VerifyTable(t.Context()))
}

func TestWrongNames(t *testing.T) {
	client := reach(t, newFake("key"))
	long := strings.Repeat("k", 3000)
	for what, c := range map[string]struct {
		table, key string
		o          dynamo.Options
		says       string
	}{
		"ShortTable":   {"el", "one", dynamo.Options{}, "table name"},
		"SpacedTable":  {"the elections", "one", dynamo.Options{}, "table name"},
		"NoTable":      {"", "one", dynamo.Options{}, "table name"},
		"NoKey":        {"elections", "", dynamo.Options{}, "1 to 2048"},
		"LongKey":      {"elections", long, dynamo.Options{}, "3000 bytes"},
		"LongSort":     {"elections", "one", dynamo.Options{SortKey: "sort", SortValue: long}, "3000 bytes"},
		"NoSortKey":    {"elections", "one", dynamo.Options{SortValue: "x"}, "no SortKey"},
		"OneNameTwice": {"elections", "one", dynamo.Options{SortKey: "key"}, "both"},
		"OurName":      {"elections", "one", dynamo.Options{PartitionKey: "version"}, `"version"`},
	} {
		t.Run(what, func(t *testing.T) { feedtest.Refuses(t, dynamo.NewDecider(client, c.table, c.key, &c.o), c.says) })
	}
	arn := dynamo.NewDecider(client, "arn:aws:dynamodb:eu-central-1:123456789012:table/elections", "one", nil)
	feedtest.Permanent(t, feedtest.ReadError(t, arn), "create it") // asked for, and not there
	nowhere := dynamodb.New(dynamodb.Options{Credentials: newClient(t, "").Options().Credentials})
	feedtest.Refuses(t, dynamo.NewDecider(nowhere, "elections", "one", nil), "AWS_REGION")
}

// What the service answers, whatever the emulators do.
func TestAnswers(t *testing.T) {
	for code, c := range map[string]struct {
		status int
		is     func(testing.TB, error, ...string)
		advice string
	}{
		"AccessDeniedException":                  {400, feedtest.Denied, "dynamodb:UpdateItem"},
		"UnrecognizedClientException":            {400, feedtest.Denied, "credentials"},
		"MissingAuthenticationTokenException":    {400, feedtest.Denied, "credentials"},
		"IncompleteSignatureException":           {400, feedtest.Denied, "credentials"},
		"InvalidSignatureException":              {400, feedtest.Permanent, "secret"},
		"ExpiredTokenException":                  {400, feedtest.Denied, "expired"},
		"ResourceNotFoundException":              {400, feedtest.Permanent, "region"},
		"ValidationException":                    {400, feedtest.Permanent, "as it is"},
		"KMSAccessDeniedException":               {400, feedtest.Permanent, "KMS"},
		"SomethingNew":                           {403, feedtest.Denied, "refused"},
		"RequestTimeTooSkewed":                   {400, feedtest.Passing, "clock"},
		"ThrottlingException":                    {400, feedtest.Passing, ""},
		"ProvisionedThroughputExceededException": {400, feedtest.Passing, ""},
		"RequestLimitExceeded":                   {400, feedtest.Passing, ""},
		"LimitExceededException":                 {400, feedtest.Passing, ""},
		"InternalServerError":                    {500, feedtest.Passing, ""},
		"ServiceUnavailable":                     {503, feedtest.Passing, ""},
		"ReplicatedWriteConflictException":       {400, feedtest.Passing, ""},
		"TransactionConflictException":           {400, feedtest.Passing, ""},
		"TooManyRequests":                        {429, feedtest.Passing, ""},
		"RequestLimitExceeded 403":               {403, feedtest.Passing, ""},
		"SerializationException":                 {400, feedtest.Permanent, "as it is"},
		"UnknownOperationException":              {400, feedtest.Permanent, "as it is"},
	} {
		t.Run(code, func(t *testing.T) {
			code, _, _ := strings.Cut(code, " ")
			d := answering(t, refusal(c.status, code))
			for _, err := range feedtest.Errors(t, d) {
				c.is(t, err, `"elections"`, `"one"`, c.advice, code)
			}
		})
	}
	expired := refusal(400, "InvalidSignatureException")
	expired.Body = strings.Replace(expired.Body, "said the server", "Signature expired: 20261121T112405Z is now earlier than", 1)
	expired.Header = proof([]byte(expired.Body))
	feedtest.Passing(t, feedtest.ReadError(t, answering(t, expired)), "clock")
}

// What something on the way says of itself may pass.
func TestAnswersOfOthers(t *testing.T) {
	all := httpfault.OfOthers(412)
	for _, f := range all {
		for _, code := range []string{"AccessDeniedException", "ConditionalCheckFailedException"} { // without its proof
			all = append(all, httpfault.Fault{Status: f.Status, Body: refusal(400, code).Body})
		}
	}
	for _, f := range all {
		d := answering(t, f)
		for _, err := range append(feedtest.Errors(t, d), d.VerifyTable(t.Context())) {
			feedtest.Passing(t, err, "not from DynamoDB")
		}
	}
	empty := httpfault.Fault{Status: 200, Header: proof([]byte("{}")), Body: "{}"}
	feedtest.Passing(t, answering(t, empty).VerifyTable(t.Context()), "does not describe")
}

// answering returns a decider whose every request is answered with f.
func answering(t *testing.T, f httpfault.Fault) *dynamo.Decider {
	tr := &httpfault.Transport{Fault: func(*http.Request) httpfault.Fault { return f }}
	return dynamo.NewDecider(inProcess(t, &http.Client{Transport: tr}), "elections", "one", nil)
}

func TestSpoiltAnswers(t *testing.T) {
	s := overHTTP(t)
	httpfault.SpoiltAnswers(t, s.Serve(), s.Decider)
}

// Without credentials, which a role may yet bring, that is what is said.
func TestNoCredentials(t *testing.T) {
	none := errors.New("no role here")
	client := newClient(t, "https://in-process", func(o *dynamodb.Options) {
		o.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return aws.Credentials{}, none })
	})
	_, err := dynamo.NewDecider(client, "elections", "one", nil).ReadCurrent(t.Context())
	if feedtest.Passing(t, err, "AWS_ACCESS_KEY_ID"); !errors.Is(err, none) {
		t.Errorf("%v does not wrap %q", err, none)
	}
}

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
	feedtest.Write(t, one, 1, nil)
	same := dynamo.NewDecider(newClient(t, endpoint), "opened", "team/one /ü", &dynamo.Options{PartitionKey: "PK", SortKey: "SK", SortValue: "x"})
	feedtest.Reads(t, same, 1)
	if _, err := open(t, "dynamodb://opened/two?region=eu-central-1&partition_key=PK&sort_key=SK&verify=true"+at); err != nil {
		t.Errorf("verified: %v", err)
	}
	_, err = open(t, "dynamodb://opened/two?region=eu-central-1&verify=true"+at)
	feedtest.Permanent(t, err, "sort key")
}

func TestOpenRefuses(t *testing.T) {
	awstest.OpenRefuses(t, dynamo.Open, "dynamodb", "table", map[string]string{
		"dynamodb://elections/one?create=perhaps":                                  "true or false",
		"dynamodb://elections?region=eu-central-1":                                 "1 to 2048",
		"dynamodb:///one?region=eu-central-1":                                      "table name",
		"dynamodb://el/one?region=eu-central-1":                                    "table name",
		"dynamodb://elections/one?region=x&sort_value=y":                           "SortKey",
		"dynamodb:///one?table=arn:aws:dynamodb:eu-central-1:123456789012:index/x": "not a table name",
	})
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
}

// The next call has the credentials of the file as it is now, whatever the server says of the old ones.
func TestRenewedCredentials(t *testing.T) {
	awstest.Renewed(t, dynamo.Open, "dynamodb://elections/one?region=x",
		func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, map[string]any{}) },
		func(w http.ResponseWriter, code string) { refuse(w, code, "said the server", nil) },
		"ExpiredTokenException", "UnrecognizedClientException", "InvalidSignatureException")
}

// A table takes longer to be created than one call may take: the calls meanwhile
// fail with errors that pass, and one table is created.
func TestTableIsCreated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFake("key")
		server.making = 9 * time.Second
		campaign := func(id string) <-chan struct{} {
			o := &dynamo.Options{SortKey: "sort", CreateTable: true}
			_, elected := feedtest.Campaign(t, dynamo.NewDecider(reach(t, server), "new-elections", "one", o), id, 15*time.Second, time.Second)
			return elected
		}
		began := time.Now()
		a, b := campaign("a"), campaign("b")
		select {
		case <-a:
		case <-b:
		}
		if took := time.Since(began); took < server.making || took > server.making+10*time.Second {
			t.Errorf("elected after %v, the table was there after %v", took, server.making)
		}
		time.Sleep(time.Minute)
		if len(a)+len(b) > 0 {
			t.Error("the other was elected, too")
		}
		if keys := server.tables["new-elections"].keys; strings.Join(keys, " ") != "key sort" {
			t.Errorf("keys %v", keys)
		}
	})
}

// Without the permission to create tables, that is what is said.
func TestTableCannotBeCreated(t *testing.T) {
	server := newFake("key")
	tr := &httpfault.Transport{Handler: server, Fault: func(r *http.Request) (f httpfault.Fault) {
		if strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".CreateTable") {
			f = refusal(http.StatusBadRequest, "AccessDeniedException")
		}
		return f
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
	token := feedtest.Write(t, a, 1, nil)
	yours := feedtest.State(1, nil)
	yours.LeaderID, yours.Incarnation = "b", "b"
	if _, err := b.WriteEntry(t.Context(), yours); err != nil {
		t.Fatal(err)
	}
	there.replicate(here) // the last writer wins
	var lost *leaderelection.LostRaceError
	if err := feedtest.WriteError(t, a, 2, token); !errors.As(err, &lost) || lost.Current == nil || lost.Current.LeaderID != "b" {
		t.Errorf("a's extension over b's record: %v", err)
	}
}
