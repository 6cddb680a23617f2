package fencedynamo_test

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log"
	"net/http"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/c8e606e4/leaderelection/deciders/dynamo/fencedynamo"
	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/fencetest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/httpfault"
)

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

type attributes = map[string]types.AttributeValue

func key(id string) attributes { return attributes{"id": text(id)} }

// got is the item as it is now, or nil.
func got(t *testing.T, client *dynamodb.Client, table *string, id string) attributes {
	t.Helper()
	out, err := client.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: table, Key: key(id), ConsistentRead: aws.Bool(true)})
	if err != nil {
		t.Fatal(err)
	}
	return out.Item
}

func newClient(endpoint string, rt http.RoundTripper) *dynamodb.Client {
	return dynamodb.New(dynamodb.Options{
		BaseEndpoint: &endpoint, Region: "eu-west-1", Credentials: credentials.NewStaticCredentialsProvider("a", "b", ""), HTTPClient: &http.Client{Transport: rt},
	})
}

func TestFence(t *testing.T) {
	for name, start := range map[string]func(testing.TB) string{"dynalite": stores.Dynalite, "DynamoDBLocal": stores.DynamoDBLocal} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name != "dynalite" {
				t.Skip("nightly: the same once more")
			}
			fences(t, start(t), name == "DynamoDBLocal")
		})
	}
}

func fences(t *testing.T, endpoint string, local bool) {
	tr := new(http.Transport)
	defer tr.CloseIdleConnections()
	liar := &httpfault.Liar{Next: tr}
	client := newClient(endpoint, liar)
	table := aws.String("orders")
	if _, err := client.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName: table, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("id"), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("id"), KeyType: types.KeyTypeHash}},
	}); err != nil {
		t.Fatal(err)
	}
	soon := func(o *dynamodb.TableExistsWaiterOptions) { o.MinDelay, o.MaxDelay = 50*time.Millisecond, time.Second }
	if err := dynamodb.NewTableExistsWaiter(client, soon).Wait(t.Context(), &dynamodb.DescribeTableInput{TableName: table}, time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := fencedynamo.Verify(t.Context(), client, *table, "fence"); err != nil {
		t.Error(err)
	}
	put := func(number uint64, state string) error {
		in := &dynamodb.PutItemInput{TableName: table, Item: attributes{"id": text("7"), "state": text(state)}}
		_, err := fencedynamo.Put(t.Context(), client, fencetest.Orders(number), in, "fence")
		return err
	}
	update := func(number uint64, expression string) error {
		in := &dynamodb.UpdateItemInput{TableName: table, Key: key("7"), UpdateExpression: &expression, ConditionExpression: aws.String("attribute_exists(id)")}
		if strings.Contains(expression, ":s") {
			in.ExpressionAttributeValues = attributes{":s": text(expression)}
		}
		if strings.Contains(expression, "#s") {
			in.ExpressionAttributeNames = map[string]string{"#s": "state"}
		}
		_, err := fencedynamo.Update(t.Context(), client, fencetest.Orders(number), in, "fence")
		return err
	}
	for i, c := range []struct{ err, want error }{
		{put(9, "a"), nil}, {put(9, "b"), nil}, {put(8, "c"), stale(local)}, {put(10, "d"), nil}, {put(0, "e"), fence.ErrNoToken},
		{update(9, "SET #s = :s"), stale(local)}, {update(11, "SET #s = :s"), nil}, {put(10, "h"), stale(local)},
		{update(12, "REMOVE #s"), nil}, {put(11, "i"), stale(local)},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%d: %v, want %v", i, c.err, c.want)
		}
	}
	is := got(t, client, table, "7")
	if n, _ := is["fence"].(*types.AttributeValueMemberN); n == nil || n.Value != "12" || is["state"] != nil {
		t.Errorf("the item is %v", is)
	}
	for i, expression := range []string{
		"SET #s = :s", "set #s = :s", " Set\t#s = :s", "\n SET\n#s=:s", "REMOVE spare7 SET #s = :s", "remove spare7\nset #s = :s", "REMOVE spare7", "",
	} {
		n := uint64(20 + i)
		if now, late := update(n, expression), update(n-1, expression); now != nil || !errors.Is(late, stale(local)) {
			t.Errorf("%q: %v, and under an older token: %v", expression, now, late)
		}
	}
	t.Run("Deletes", func(t *testing.T) { deletes(t, client, table, local) })
	if local { // the other knows no transactions
		t.Run("Transaction", func(t *testing.T) { transaction(t, client, table) })
	}
	for _, lie := range httpfault.Lies() {
		if strings.HasPrefix(lie.Name, "Replay") || strings.HasPrefix(lie.Name, "Old") {
			continue // an answer that DynamoDB gave once has all that it could have
		}
		liar.Tell(&lie)
		for what, err := range map[string]error{"put": put(99, "lie"), "update": update(99, "SET #s = :s")} {
			if err == nil || errors.Is(err, fence.ErrStale) || liar.Told() < 2 {
				t.Errorf("%s, %s: %v", lie.Name, what, err)
			}
		}
		liar.Tell(nil)
	}
	if err := put(98, "no lie"); err != nil {
		t.Errorf("a lie was written: %v", err)
	}
	if _, err := fencedynamo.Put(t.Context(), client, fencetest.Orders(1), &dynamodb.PutItemInput{}, ""); err == nil {
		t.Error("an attribute without a name is taken")
	}
}

// Several items behind a fence that is an item of its own.
func transaction(t *testing.T, client *dynamodb.Client, table *string) {
	for _, c := range []struct {
		number uint64
		want   error
	}{{2, nil}, {2, nil}, {1, fence.ErrStale}, {3, nil}, {2, fence.ErrStale}} {
		in := &dynamodb.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{
			{Put: &types.Put{TableName: table, Item: attributes{"id": text("one"), "state": text(fmt.Sprint(c.number))}}},
		}}
		o := &fencedynamo.TransactOptions{FenceTable: *table, FenceKey: key("the fence")}
		if _, err := fencedynamo.Transact(t.Context(), client, fencetest.Orders(c.number), in, "fence", o); !errors.Is(err, c.want) {
			t.Errorf("%d: %v, want %v", c.number, err, c.want)
		}
	}
}

// stale is the error that a stale token gets: dynalite does not return the item that refuses it.
func stale(local bool) error {
	if local {
		return fence.ErrStale
	}
	return fence.ErrNotWritten
}

// A delete under a fence, of items with a fence of their own, alone and in a transaction
// with the other kinds of writes.
func deletes(t *testing.T, client *dynamodb.Client, table *string, local bool) {
	put := func(id string, number uint64) {
		if _, err := fencedynamo.Put(t.Context(), client, fencetest.Orders(number), &dynamodb.PutItemInput{TableName: table, Item: key(id)}, "fence"); err != nil {
			t.Fatal(err)
		}
	}
	there := func(id string) bool { return got(t, client, table, id) != nil }
	put("gone", 5)
	for _, c := range []struct {
		number uint64
		want   error
		there  bool
	}{{4, stale(local), true}, {0, fence.ErrNoToken, true}, {5, nil, false}, {4, nil, false}} {
		in := &dynamodb.DeleteItemInput{TableName: table, Key: key("gone"), ConditionExpression: aws.String("attribute_not_exists(kept)")}
		if _, err := fencedynamo.Delete(t.Context(), client, fencetest.Orders(c.number), in, "fence"); !errors.Is(err, c.want) || there("gone") != c.there {
			t.Errorf("deleting under %d: %v, and it is there: %v", c.number, err, there("gone"))
		}
	}
	if !local {
		return
	}
	for number, want := range map[uint64]error{7: fence.ErrStale, 8: nil} {
		ids := []string{"put", "update", "delete", "check"}
		for _, stale := range ids { // whichever of them has seen a newer one
			for _, id := range ids {
				seen := uint64(6)
				if id == stale {
					seen = 8
				}
				if _, err := client.DeleteItem(t.Context(), &dynamodb.DeleteItemInput{TableName: table, Key: key(id)}); err != nil {
					t.Fatal(err)
				}
				put(id, seen)
			}
			items := []types.TransactWriteItem{
				{Put: &types.Put{TableName: table, Item: key("put")}}, {Update: &types.Update{TableName: table, Key: key("update")}},
				{Delete: &types.Delete{TableName: table, Key: key("delete")}},
				{ConditionCheck: &types.ConditionCheck{TableName: table, Key: key("check"), ConditionExpression: aws.String("attribute_exists(id)")}},
			}
			in := &dynamodb.TransactWriteItemsInput{TransactItems: items}
			if _, err := fencedynamo.Transact(t.Context(), client, fencetest.Orders(number), in, "fence", nil); !errors.Is(err, want) || there("delete") != (want != nil) {
				t.Errorf("a transaction under %d, where %q has seen 8: %v", number, stale, err)
			}
		}
	}
}

// What can be no transaction under a fence is refused, and left as it is.
func TestTransactionRefused(t *testing.T) {
	token, key := fencetest.Orders(1), key("f")
	transact := func(items int, attribute string, opts *fencedynamo.TransactOptions) error {
		in := &dynamodb.TransactWriteItemsInput{TransactItems: make([]types.TransactWriteItem, items)}
		_, err := fencedynamo.Transact(t.Context(), &recorder{}, token, in, attribute, opts)
		return err
	}
	for says, err := range map[string]error{
		"make it smaller": transact(100, "fence", &fencedynamo.TransactOptions{FenceTable: "t", FenceKey: key}),
		"no table":        transact(1, "fence", &fencedynamo.TransactOptions{FenceKey: key}),
		"or no key":       transact(1, "fence", &fencedynamo.TransactOptions{FenceTable: "t"}),
		"has no name":     transact(1, "", &fencedynamo.TransactOptions{FenceTable: "t", FenceKey: key}),
		"is empty":        transact(1, "fence", nil),
	} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want an error that says %q", err, says)
		}
	}
	if _, err := fencedynamo.Delete(t.Context(), &recorder{}, fencetest.Orders(0), &dynamodb.DeleteItemInput{}, "fence"); !errors.Is(err, fence.ErrNoToken) {
		t.Errorf("a delete without a token: %v", err)
	}
}

// Nothing is sent under what is not a token.
func TestNotTokens(t *testing.T) {
	for _, bad := range fencetest.NotTokens() {
		var sent recorder
		_, put := fencedynamo.Put(t.Context(), &sent, bad, &dynamodb.PutItemInput{}, "fence")
		_, update := fencedynamo.Update(t.Context(), &sent, bad, &dynamodb.UpdateItemInput{}, "fence")
		_, transact := fencedynamo.Transact(t.Context(), &sent, bad, &dynamodb.TransactWriteItemsInput{}, "fence", nil)
		for name, err := range map[string]error{"Put": put, "Update": update, "Transact": transact} {
			if !errors.Is(err, fence.ErrMalformed) || sent != (recorder{}) {
				t.Errorf("%s under %v: %v", name, bad, err)
			}
		}
	}
}

// Something else than a fence may cancel a transaction, or refuse a write.
func TestRefusedOtherwise(t *testing.T) {
	token := fencetest.Orders(7)
	item := func(fence string) attributes {
		return attributes{"id": text("1"), "fence": &types.AttributeValueMemberN{Value: fence}}
	}
	of := func(code string, item attributes) error {
		return fmt.Errorf("wrapped: %w", &types.TransactionCanceledException{CancellationReasons: []types.CancellationReason{{Code: aws.String("None")}, {}, {Code: &code, Item: item}}})
	}
	for name, c := range map[string]struct{ err, want error }{
		"a fence of a transaction":            {of("ConditionalCheckFailed", item("8")), fence.ErrStale},
		"a condition in a transaction":        {of("ConditionalCheckFailed", item("7")), fence.ErrNotWritten},
		"a conflict":                          {of("TransactionConflict", item("8")), nil},
		"too many":                            {of("ThrottlingError", nil), nil},
		"nothing":                             {of("None", nil), nil},
		"the fence":                           {&types.ConditionalCheckFailedException{Item: item("18446744073709551615")}, fence.ErrStale},
		"a condition beside the fence":        {&types.ConditionalCheckFailedException{Item: item("6")}, fence.ErrNotWritten},
		"an item that is not there":           {&types.ConditionalCheckFailedException{}, fence.ErrNotWritten},
		"an item whose fence holds no number": {&types.ConditionalCheckFailedException{Item: item("x")}, fence.ErrNotWritten},
		"something else that has gone wrong":  {errors.New("no route to host"), nil},
	} {
		_, got := fencedynamo.Put(t.Context(), &recorder{err: c.err}, token, &dynamodb.PutItemInput{}, "fence")
		if errors.Is(got, fence.ErrStale) != (c.want == fence.ErrStale) || errors.Is(got, fence.ErrNotWritten) != (c.want == fence.ErrNotWritten) || !errors.Is(got, c.err) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// Whatever an expression is, what it said is still there, and the number joins its SET
// clause if there is one.
func FuzzUpdate(f *testing.F) {
	for _, e := range []string{"", "SET a = b", "set #set = :set", "REMOVE #set, a.b", "ADD :set x SET y = z", "SETx = 1", "SET", "(set a = b)", "reset = 1"} {
		f.Add(e)
	}
	clause := regexp.MustCompile(`(?i)(^|[^\w#:.])set\s`)
	f.Fuzz(func(t *testing.T, e string) {
		var sent recorder
		if _, err := fencedynamo.Update(t.Context(), &sent, fencetest.Orders(1), &dynamodb.UpdateItemInput{UpdateExpression: &e}, "fence"); err != nil {
			t.Fatal(err)
		}
		got, ours := *sent.update.UpdateExpression, "#leaderelectionFence = :leaderelectionFence, "
		if !clause.MatchString(e) {
			ours = "SET #leaderelectionFence = :leaderelectionFence"
		}
		if rest := strings.Replace(got, ours, "", 1); rest == got || strings.TrimSpace(rest) != strings.TrimSpace(e) {
			t.Errorf("%q becomes %q", e, got)
		}
	})
}

// recorder is a client that keeps what was sent.
type recorder struct {
	fencedynamo.Client
	put         *dynamodb.PutItemInput
	update      *dynamodb.UpdateItemInput
	transaction *dynamodb.TransactWriteItemsInput
	err         error
}

func (r *recorder) PutItem(_ context.Context, in *dynamodb.PutItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	r.put = in
	return nil, r.err
}

func (r *recorder) UpdateItem(_ context.Context, in *dynamodb.UpdateItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	r.update = in
	return nil, r.err
}

func (r *recorder) TransactWriteItems(_ context.Context, in *dynamodb.TransactWriteItemsInput, _ ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error) {
	r.transaction = in
	return nil, r.err
}

// The number joins the SET clause that there is, and no other word that looks like it.
func TestTheNumberJoinsTheSetClause(t *testing.T) {
	const ours = "#leaderelectionFence = :leaderelectionFence"
	for was, want := range map[string]string{
		"":                           "SET " + ours,
		"SET a = b":                  "SET " + ours + ", a = b",
		"REMOVE c set a = b":         "REMOVE c set " + ours + ", a = b",
		"ADD #set :set SET y = :set": "ADD #set :set SET " + ours + ", y = :set",
		"DELETE a.set :v SET y = z":  "DELETE a.set :v SET " + ours + ", y = z",
		"ADD :set x":                 "SET " + ours + " ADD :set x",
		"ADD reset :v":               "SET " + ours + " ADD reset :v",
	} {
		var sent recorder
		_, err := fencedynamo.Update(t.Context(), &sent, fencetest.Orders(1), &dynamodb.UpdateItemInput{UpdateExpression: &was}, "fence")
		if err != nil || *sent.update.UpdateExpression != want {
			t.Errorf("%q becomes %q, want %q; %v", was, *sent.update.UpdateExpression, want, err)
		}
	}
}

// Each kind of write in a transaction keeps the number and has the condition, which a caller's own
// condition does not weaken; and the maps and lists that the caller goes on using are as they were.
func TestTransactionsKeepTheNumber(t *testing.T) {
	number := types.AttributeValue(&types.AttributeValueMemberN{Value: "7"})
	const fence = "(attribute_not_exists(#leaderelectionFence) OR #leaderelectionFence <= :leaderelectionFence)"
	item := attributes{"id": text("1")}
	names := map[string]string{"#a": "a"}
	values := attributes{":a": text("x")}
	now := func() string { return fmt.Sprint(item, names, values) }
	was := now()
	own := "#a = :a OR #a = :a"
	spare := make([]types.TransactWriteItem, 4, 9)
	spare[0].Put = &types.Put{Item: item, ConditionExpression: &own, ExpressionAttributeNames: names, ExpressionAttributeValues: values}
	spare[1].Update = &types.Update{Key: item, ConditionExpression: &own, ExpressionAttributeNames: names, ExpressionAttributeValues: values}
	spare[2].Delete = &types.Delete{Key: item, ConditionExpression: &own, ExpressionAttributeNames: names, ExpressionAttributeValues: values}
	spare[3].ConditionCheck = &types.ConditionCheck{Key: item, ConditionExpression: &own, ExpressionAttributeNames: names, ExpressionAttributeValues: values}
	in := &dynamodb.TransactWriteItemsInput{TransactItems: spare}
	var sent recorder
	if _, err := fencedynamo.Transact(t.Context(), &sent, fencetest.Orders(7), in, "fence", nil); err != nil {
		t.Fatal(err)
	}
	got := sent.transaction.TransactItems
	for i, c := range []*string{got[0].Put.ConditionExpression, got[1].Update.ConditionExpression, got[2].Delete.ConditionExpression, got[3].ConditionCheck.ConditionExpression} {
		if want := fence + " AND (" + own + ")"; aws.ToString(c) != want {
			t.Errorf("item %d: %q, want %q", i, aws.ToString(c), want)
		}
	}
	if got := got[0].Put.Item["fence"]; !reflect.DeepEqual(got, number) {
		t.Errorf("a Put in a transaction keeps %v", got)
	}
	if got := aws.ToString(got[1].Update.UpdateExpression); got != "SET #leaderelectionFence = :leaderelectionFence" {
		t.Errorf("an Update in a transaction: %q", got)
	}

	put := &dynamodb.PutItemInput{Item: item, ExpressionAttributeNames: names, ExpressionAttributeValues: values}
	if _, err := fencedynamo.Put(t.Context(), &sent, fencetest.Orders(7), put, "fence"); err != nil || !reflect.DeepEqual(sent.put.Item["fence"], number) {
		t.Errorf("%v, %v", sent.put.Item, err)
	}
	if _, err := fencedynamo.Transact(t.Context(), &sent, fencetest.Orders(7), in, "fence", &fencedynamo.TransactOptions{FenceTable: "t", FenceKey: item}); err != nil || len(sent.transaction.TransactItems) != 5 {
		t.Errorf("%d items, %v", len(sent.transaction.TransactItems), err)
	}
	if spare[:5][4].Update != nil || spare[1].Update.UpdateExpression != nil || *spare[0].Put.ConditionExpression != own || put.ConditionExpression != nil {
		t.Error("the caller's input was changed")
	}
	if now() != was {
		t.Errorf("the caller's maps are %s, were %s", now(), was)
	}
}

// saying is a server with a table, and an answer to each other operation.
type saying struct{ table, life, deleted string }

func (s saying) RoundTrip(r *http.Request) (*http.Response, error) {
	_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	body, status := map[string]string{"DescribeTable": s.table, "DescribeTimeToLive": s.life, "DeleteItem": s.deleted}[operation], http.StatusOK
	if strings.Contains(body, "__type") {
		status = http.StatusBadRequest
	}
	h := http.Header{"Content-Type": {"application/x-amz-json-1.0"}, "X-Amzn-Requestid": {"1"}, "X-Amz-Crc32": {fmt.Sprint(crc32.ChecksumIEEE([]byte(body)))}}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Request: r}, nil
}

// Verify reports a table that cannot keep a fence, and accepts one that can.
func TestVerify(t *testing.T) {
	table := func(more, kind string) string {
		return `{"Table":{"KeySchema":[{"AttributeName":"id","KeyType":"HASH"}],"AttributeDefinitions":[{"AttributeName":"id","AttributeType":"` + kind + `"}]` + more + `}}`
	}
	const (
		refused = `{"__type":"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException","message":"no"}`
		unknown = `{"__type":"com.amazonaws.dynamodb.v20120810#UnknownOperationException"}`
		replica = `,"Replicas":[{"RegionName":"eu-west-1"}]`
	)
	life := func(attribute string) string {
		return `{"TimeToLiveDescription":{"AttributeName":"` + attribute + `","TimeToLiveStatus":"ENABLED"}}`
	}
	for name, c := range map[string]struct {
		saying
		want string
	}{
		"sound":                  {saying{table("", "S"), `{}`, refused}, ""},
		"a number as its key":    {saying{table("", "N"), `{}`, refused}, ""},
		"bytes as its key":       {saying{table("", "B"), `{}`, refused}, ""},
		"no time to live at all": {saying{table("", "S"), unknown, refused}, ""},
		"other items expire":     {saying{table("", "S"), life("expires"), refused}, ""},
		"the fence expires":      {saying{table("", "S"), life("fence"), refused}, "time to live"},
		"global":                 {saying{table(replica, "S"), `{}`, refused}, "global table"},
		"global, and eventual":   {saying{table(replica+`,"MultiRegionConsistency":"EVENTUAL"`, "S"), `{}`, refused}, "global table"},
		"global, of 2017":        {saying{table(`,"GlobalTableVersion":"2017.11.29"`, "S"), `{}`, refused}, "global table"},
		"global, and strong":     {saying{table(replica+`,"MultiRegionConsistency":"STRONG"`, "S"), `{}`, refused}, ""},
		"deaf to conditions":     {saying{table("", "S"), `{}`, `{}`}, "takes no notice of conditions"},
		"it does not say":        {saying{table("", "S"), `{}`, unknown}, "UnknownOperation"},
		"no table in the answer": {saying{`{}`, `{}`, refused}, "does not describe"},
		"it cannot be looked at": {saying{unknown, `{}`, refused}, "UnknownOperation"},
	} {
		err := fencedynamo.Verify(t.Context(), newClient("http://127.0.0.1:1", c.saying), "orders", "fence")
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), `"orders"`)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// A whole write. Not run with the tests: it needs a table.
func Example() {
	ctx := context.Background()
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		log.Fatal(err)
	}
	client := dynamodb.NewFromConfig(cfg)
	token := fence.Token{Election: "orders", Number: 7} // Gate.Token returns it
	input := &dynamodb.PutItemInput{TableName: aws.String("orders"), Item: attributes{
		"id": &types.AttributeValueMemberS{Value: "17"}, "state": &types.AttributeValueMemberS{Value: "sent"},
	}}
	if _, err = fencedynamo.Put(ctx, client, token, input, "fence"); errors.Is(err, fence.ErrStale) {
		log.Print("another one leads: nothing was written")
	}
}
