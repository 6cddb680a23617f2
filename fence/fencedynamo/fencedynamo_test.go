package fencedynamo_test

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/fence/fencedynamo"
	"github.com/c8e606e4/leaderelection/fence/internal/fencetest"
	"github.com/c8e606e4/leaderelection/internal/httpfault"
	"github.com/c8e606e4/leaderelection/internal/stores"
)

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

// newClient returns one that believes only DynamoDB.
func newClient(endpoint string, rt http.RoundTripper) *dynamodb.Client {
	return dynamodb.New(dynamodb.Options{
		BaseEndpoint: &endpoint, Region: "eu-west-1", Credentials: credentials.NewStaticCredentialsProvider("a", "b", ""), HTTPClient: &http.Client{Transport: rt},
	}, fencedynamo.Proved)
}

func TestFence(t *testing.T) {
	for name, start := range map[string]func(testing.TB) string{"dynalite": stores.Dynalite, "DynamoDBLocal": stores.DynamoDBLocal} {
		t.Run(name, func(t *testing.T) { fences(t, start(t), name == "DynamoDBLocal") })
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
	key := map[string]types.AttributeValue{"id": text("7")}
	put := func(token fence.Token, state string) error {
		in := &dynamodb.PutItemInput{TableName: table, Item: map[string]types.AttributeValue{"id": text("7"), "state": text(state)}}
		if err := fencedynamo.FencePut(in, token, "fence"); err != nil {
			return err
		}
		_, err := client.PutItem(t.Context(), in)
		return fencedynamo.Stale(err, token)
	}
	update := func(token fence.Token, state, expression string) error {
		in := &dynamodb.UpdateItemInput{TableName: table, Key: key, UpdateExpression: &expression, ConditionExpression: aws.String("attribute_exists(id)"),
			ExpressionAttributeNames: map[string]string{"#s": "state"}, ExpressionAttributeValues: map[string]types.AttributeValue{":s": text(state)}}
		if !strings.Contains(expression, ":s") {
			in.ExpressionAttributeValues = nil
		}
		if !strings.Contains(expression, "#s") {
			in.ExpressionAttributeNames = nil
		}
		if err := fencedynamo.FenceUpdate(in, token, "fence"); err != nil {
			return err
		}
		_, err := client.UpdateItem(t.Context(), in)
		return fencedynamo.Stale(err, token)
	}
	for i, c := range []struct {
		err  error
		want error
	}{
		{put(fencetest.Orders(9), "a"), nil}, {put(fencetest.Orders(9), "b"), nil}, {put(fencetest.Orders(8), "c"), fence.ErrStale},
		{put(fencetest.Orders(10), "d"), nil}, {put(fencetest.Orders(0), "e"), fence.ErrNoToken},
		{update(fencetest.Orders(9), "f", "SET #s = :s"), fence.ErrStale}, {update(fencetest.Orders(11), "g", "SET #s = :s"), nil},
		{put(fencetest.Orders(10), "h"), fence.ErrStale}, {update(fencetest.Orders(12), "", "REMOVE #s"), nil}, {put(fencetest.Orders(11), "i"), fence.ErrStale},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%d: %v, want %v", i, c.err, c.want)
		}
	}
	item, err := client.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: table, Key: key, ConsistentRead: aws.Bool(true)})
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := item.Item["fence"].(*types.AttributeValueMemberN); n == nil || n.Value != "12" || item.Item["state"] != nil {
		t.Errorf("the item is %v", item.Item)
	}
	for i, expression := range []string{
		"SET #s = :s", "set #s = :s", " Set\t#s = :s", "\n SET\n#s=:s", "REMOVE spare7 SET #s = :s", "remove spare7\nset #s = :s", "REMOVE spare7", "",
	} {
		token := fencetest.Orders(uint64(20 + i))
		if err := update(token, expression, expression); err != nil {
			t.Errorf("%q: %v", expression, err)
		}
		if err := update(fencetest.Orders(uint64(19+i)), "late", expression); !errors.Is(err, fence.ErrStale) {
			t.Errorf("%q under an older token: %v", expression, err)
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
		if err := put(fencetest.Orders(99), "lie"); err == nil || errors.Is(err, fence.ErrStale) || liar.Told() == 0 {
			t.Errorf("%s: %v", lie.Name, err)
		}
		if err := update(fencetest.Orders(99), "lie", "SET #s = :s"); err == nil || errors.Is(err, fence.ErrStale) {
			t.Errorf("%s: %v", lie.Name, err)
		}
		liar.Tell(nil)
	}
	if err := put(fencetest.Orders(98), "no lie"); err != nil {
		t.Errorf("a lie was written: %v", err)
	}
	if err := fencedynamo.FencePut(&dynamodb.PutItemInput{}, fencetest.Orders(1), ""); err == nil {
		t.Error("an attribute without a name is taken")
	}
}

// Several items behind a fence that is an item of its own.
func transaction(t *testing.T, client *dynamodb.Client, table *string) {
	write := func(token fence.Token, state string) error {
		in := &dynamodb.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{
			{Put: &types.Put{TableName: table, Item: map[string]types.AttributeValue{"id": text("one"), "state": text(state)}}},
		}}
		if err := fencedynamo.FenceTransaction(in, token, *table, map[string]types.AttributeValue{"id": text("the fence")}, "fence"); err != nil {
			return err
		}
		_, err := client.TransactWriteItems(t.Context(), in)
		return fencedynamo.Stale(err, token)
	}
	for _, c := range []struct {
		number uint64
		want   error
	}{{2, nil}, {2, nil}, {1, fence.ErrStale}, {3, nil}, {2, fence.ErrStale}} {
		if err := write(fencetest.Orders(c.number), fmt.Sprint(c.number)); !errors.Is(err, c.want) {
			t.Errorf("%d: %v, want %v", c.number, err, c.want)
		}
	}
}

// A delete under a fence, of items with a fence of their own, alone and in a transaction
// with the other kinds of writes.
func deletes(t *testing.T, client *dynamodb.Client, table *string, local bool) {
	key := func(id string) map[string]types.AttributeValue {
		return map[string]types.AttributeValue{"id": text(id)}
	}
	put := func(id string, number uint64) {
		in := &dynamodb.PutItemInput{TableName: table, Item: key(id)}
		if err := fencedynamo.FencePut(in, fencetest.Orders(number), "fence"); err != nil {
			t.Fatal(err)
		}
		if _, err := client.PutItem(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}
	there := func(id string) bool {
		out, err := client.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: table, Key: key(id), ConsistentRead: aws.Bool(true)})
		if err != nil {
			t.Fatal(err)
		}
		return out.Item != nil
	}
	put("gone", 5)
	for _, c := range []struct {
		number uint64
		want   error
		there  bool
	}{{4, fence.ErrStale, true}, {0, fence.ErrNoToken, true}, {5, nil, false}, {4, nil, false}} {
		in := &dynamodb.DeleteItemInput{TableName: table, Key: key("gone"), ConditionExpression: aws.String("attribute_not_exists(kept)")}
		err := fencedynamo.FenceDelete(in, fencetest.Orders(c.number), "fence")
		if err == nil {
			_, err = client.DeleteItem(t.Context(), in)
		}
		if err = fencedynamo.Stale(err, fencetest.Orders(c.number)); !errors.Is(err, c.want) || there("gone") != c.there {
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
			for i := range items {
				if err := fencedynamo.FenceTransactItem(&items[i], fencetest.Orders(number), "fence"); err != nil {
					t.Fatal(err)
				}
			}
			_, err := client.TransactWriteItems(t.Context(), &dynamodb.TransactWriteItemsInput{TransactItems: items})
			if err = fencedynamo.Stale(err, fencetest.Orders(number)); !errors.Is(err, want) || there("delete") != (want != nil) {
				t.Errorf("a transaction under %d, where %q has seen 8: %v", number, stale, err)
			}
		}
	}
}

// What can be no transaction under a fence is refused, and left as it is.
func TestTransactionRefused(t *testing.T) {
	token, key := fencetest.Orders(1), map[string]types.AttributeValue{"id": text("f")}
	full := &dynamodb.TransactWriteItemsInput{TransactItems: make([]types.TransactWriteItem, 100)}
	for says, err := range map[string]error{
		"make it smaller": fencedynamo.FenceTransaction(full, token, "t", key, "fence"),
		"no table":        fencedynamo.FenceTransaction(&dynamodb.TransactWriteItemsInput{}, token, "", key, "fence"),
		"or no key":       fencedynamo.FenceTransaction(&dynamodb.TransactWriteItemsInput{}, token, "t", nil, "fence"),
		"has no name":     fencedynamo.FenceTransaction(&dynamodb.TransactWriteItemsInput{}, token, "t", key, ""),
		"is empty":        fencedynamo.FenceTransactItem(&types.TransactWriteItem{}, token, "fence"),
	} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want an error that says %q", err, says)
		}
	}
	if len(full.TransactItems) != 100 {
		t.Error("the transaction was changed")
	}
	if err := fencedynamo.FenceDelete(&dynamodb.DeleteItemInput{}, fencetest.Orders(0), "fence"); !errors.Is(err, fence.ErrNoToken) {
		t.Errorf("a delete without a token: %v", err)
	}
}

// What cancels a transaction need not be a fence.
func TestCancelledOtherwise(t *testing.T) {
	token := fencetest.Orders(1)
	for code, stale := range map[string]bool{"ConditionalCheckFailed": true, "TransactionConflict": false, "ThrottlingError": false, "None": false} {
		err := fmt.Errorf("wrapped: %w", &types.TransactionCanceledException{CancellationReasons: []types.CancellationReason{{Code: aws.String("None")}, {}, {Code: &code}}})
		if got := fencedynamo.Stale(err, token); errors.Is(got, fence.ErrStale) != stale || !errors.Is(got, err) {
			t.Errorf("%s: %v", code, got)
		}
	}
}

// Whatever an expression is, what it said is still there, and the number joins its SET
// clause if there is one.
func FuzzFenceUpdate(f *testing.F) {
	for _, e := range []string{"", "SET a = b", "set #set = :set", "REMOVE #set, a.b", "ADD :set x SET y = z", "SETx = 1", "SET", "(set a = b)", "reset = 1"} {
		f.Add(e)
	}
	clause := regexp.MustCompile(`(?i)(^|[^\w#:.])set\s`)
	f.Fuzz(func(t *testing.T, e string) {
		in := &dynamodb.UpdateItemInput{UpdateExpression: &e}
		if err := fencedynamo.FenceUpdate(in, fencetest.Orders(1), "fence"); err != nil {
			t.Fatal(err)
		}
		got, ours := *in.UpdateExpression, "#leaderelectionFence = :leaderelectionFence, "
		if !clause.MatchString(e) {
			ours = "SET #leaderelectionFence = :leaderelectionFence"
		}
		if rest := strings.Replace(got, ours, "", 1); rest == got || strings.TrimSpace(rest) != strings.TrimSpace(e) {
			t.Errorf("%q becomes %q", e, got)
		}
	})
}
