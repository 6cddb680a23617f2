package fencedynamo_test

import (
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/c8e606e4/leaderelection/deciders/dynamo/fencedynamo"
)

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
