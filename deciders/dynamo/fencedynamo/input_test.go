package fencedynamo_test

import (
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/c8e606e4/leaderelection/deciders/dynamo/fencedynamo"
	"github.com/c8e606e4/leaderelection/internal/test/suite/fencetest"
)

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
	item := map[string]types.AttributeValue{"id": text("1")}
	names := map[string]string{"#a": "a"}
	values := map[string]types.AttributeValue{":a": text("x")}
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
