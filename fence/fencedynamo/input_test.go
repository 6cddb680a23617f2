package fencedynamo_test

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/c8e606e4/leaderelection/fence/fencedynamo"
	"github.com/c8e606e4/leaderelection/fence/internal/fencetest"
)

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
		in := &dynamodb.UpdateItemInput{UpdateExpression: &was}
		if err := fencedynamo.FenceUpdate(in, fencetest.Orders(1), "fence"); err != nil || *in.UpdateExpression != want {
			t.Errorf("%q becomes %q, want %q; %v", was, *in.UpdateExpression, want, err)
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
	was := fmt.Sprint(item, names, values)
	own := "#a = :a OR #a = :a"
	spare := make([]types.TransactWriteItem, 4, 9)
	spare[0].Put = &types.Put{Item: item, ConditionExpression: &own, ExpressionAttributeNames: names, ExpressionAttributeValues: values}
	spare[1].Update = &types.Update{Key: item, ConditionExpression: &own, ExpressionAttributeNames: names, ExpressionAttributeValues: values}
	spare[2].Delete = &types.Delete{Key: item, ConditionExpression: &own, ExpressionAttributeNames: names, ExpressionAttributeValues: values}
	spare[3].ConditionCheck = &types.ConditionCheck{Key: item, ConditionExpression: &own, ExpressionAttributeNames: names, ExpressionAttributeValues: values}
	var conditions []*string
	for i := range spare {
		if err := fencedynamo.FenceTransactItem(&spare[i], fencetest.Orders(7), "fence"); err != nil {
			t.Fatal(err)
		}
	}
	conditions = append(conditions, spare[0].Put.ConditionExpression, spare[1].Update.ConditionExpression, spare[2].Delete.ConditionExpression, spare[3].ConditionCheck.ConditionExpression)
	for i, c := range conditions {
		if want := fence + " AND (" + own + ")"; aws.ToString(c) != want {
			t.Errorf("item %d: %q, want %q", i, aws.ToString(c), want)
		}
	}
	if got := spare[0].Put.Item["fence"]; !reflect.DeepEqual(got, number) {
		t.Errorf("a Put in a transaction keeps %v", got)
	}
	if got := aws.ToString(spare[1].Update.UpdateExpression); got != "SET #leaderelectionFence = :leaderelectionFence" {
		t.Errorf("an Update in a transaction: %q", got)
	}

	put := &dynamodb.PutItemInput{Item: item, ExpressionAttributeNames: names, ExpressionAttributeValues: values}
	if err := fencedynamo.FencePut(put, fencetest.Orders(7), "fence"); err != nil || !reflect.DeepEqual(put.Item["fence"], number) {
		t.Errorf("%v, %v", put.Item, err)
	}
	in := &dynamodb.TransactWriteItemsInput{TransactItems: spare}
	if err := fencedynamo.FenceTransaction(in, fencetest.Orders(7), "t", item, "fence"); err != nil || len(in.TransactItems) != 5 {
		t.Errorf("%d items, %v", len(in.TransactItems), err)
	}
	if spare[:5][4].Update != nil {
		t.Error("the caller's list has an item more, behind its end")
	}
	if now := fmt.Sprint(item, names, values); now != was {
		t.Errorf("the caller's maps are %s, were %s", now, was)
	}
}
