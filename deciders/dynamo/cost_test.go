//go:build !race

package dynamo_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/c8e606e4/leaderelection/deciders/dynamo"
	"github.com/c8e606e4/leaderelection/internal/httpfault"
)

// The Decider allocates at most a fifth more than the SDK does by itself.
func TestOwnBytes(t *testing.T) {
	t.Run("read", func(t *testing.T) { readers(t).Bytes(t) })
	t.Run("write", func(t *testing.T) { writers(t).Bytes(t) })
}

// benchClient returns a client of a server on the loopback interface that says
// what it has to without thinking, and the item that it returns.
func benchClient(b testing.TB) (*dynamodb.Client, map[string]types.AttributeValue) {
	store := newFake("key")
	if _, err := dynamo.NewDecider(reach(b, store), "elections", "one", nil).WriteEntry(b.Context(), httpfault.Record()); err != nil {
		b.Fatal(err)
	}
	stored := store.tables["elections"].items["one"]
	got, err := json.Marshal(map[string]any{"Item": stored})
	if err != nil {
		b.Fatal(err)
	}
	var made atomic.Bool
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			ConditionExpression       string
			ExpressionAttributeValues map[string]json.RawMessage
		}
		body, _ := io.ReadAll(r.Body)
		answer := got
		if strings.HasSuffix(r.Header.Get("X-Amz-Target"), "UpdateItem") {
			_ = json.Unmarshal(body, &in)
			if string(in.ExpressionAttributeValues[":was"]) == `{"S":"never"}` || strings.HasPrefix(in.ConditionExpression, "attribute_not_exists") && made.Swap(true) {
				refuse(w, "ConditionalCheckFailedException", "The conditional request failed", nil)
				return
			}
			answer = fmt.Appendf(nil, `{"Attributes":{"record":%s,"version":%s}}`, in.ExpressionAttributeValues[":r"], in.ExpressionAttributeValues[":v"])
		}
		for name, values := range proof(answer) {
			w.Header()[name] = values
		}
		_, _ = w.Write(answer)
	}))
	b.Cleanup(s.Close)
	item := map[string]types.AttributeValue{}
	for name, value := range stored {
		item[name] = str(value["S"].(string))
	}
	return newClient(b, s.URL), item
}

// writers return functions that write by the SDK alone and by the decider.
func writers(b testing.TB) httpfault.Pair {
	ctx := context.Background()
	client, item := benchClient(b)
	in := &dynamodb.UpdateItemInput{
		TableName: aws.String("elections"), Key: map[string]types.AttributeValue{"key": item["key"]},
		UpdateExpression:                    aws.String("SET #r = :r, #v = :v"),
		ConditionExpression:                 aws.String("#v = :was"),
		ExpressionAttributeNames:            map[string]string{"#v": "version", "#r": "record"},
		ExpressionAttributeValues:           map[string]types.AttributeValue{":r": item["record"], ":v": item["version"], ":was": item["version"]},
		ReturnValues:                        types.ReturnValueUpdatedNew,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
	return httpfault.Pair{
		SDK:     func() error { _, err := client.UpdateItem(ctx, in); return err },
		Decider: httpfault.Extends(dynamo.NewDecider(client, "elections", "one", nil)),
	}
}

// readers return functions that read by the SDK alone and by the decider.
func readers(b testing.TB) httpfault.Pair {
	ctx := context.Background()
	client, item := benchClient(b)
	in := &dynamodb.GetItemInput{TableName: aws.String("elections"), Key: map[string]types.AttributeValue{"key": item["key"]}, ConsistentRead: aws.Bool(true)}
	d := dynamo.NewDecider(client, "elections", "one", nil)
	return httpfault.Pair{
		SDK:     func() error { _, err := client.GetItem(ctx, in); return err },
		Decider: func() error { _, err := d.ReadCurrent(ctx); return err },
	}
}
