package dynamo_test

import (
	"crypto/rand"
	"encoding/json"
	"hash/crc32"
	"io"
	"maps"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection/internal/test/suite/httpfault"
)

// fake is a DynamoDB in process: the requests that the decider makes, and nothing
// else. It exists for virtual time, and for answers that no emulator gives; that
// it is like the service is shown by the conformance suite, which runs on it and
// on the emulators.
type fake struct {
	mu     sync.Mutex
	tables map[string]*fakeTable
	making time.Duration // how long a table takes to be created
	old    bool          // whether the item is returned with a refusal
}

type fakeTable struct {
	ready time.Time
	keys  []string // partition key and perhaps sort key
	items map[string]item
}

// item is one in the form of the wire.
type item = map[string]map[string]any

// fakeRequest is the union of the requests.
type fakeRequest struct {
	TableName                           string
	Key                                 item
	UpdateExpression                    string
	ReturnValues                        string
	ConditionExpression                 string
	ExpressionAttributeNames            map[string]string
	ExpressionAttributeValues           item
	ReturnValuesOnConditionCheckFailure string
	ConsistentRead                      bool
	BillingMode                         string
	KeySchema                           []struct{ AttributeName, KeyType string }
}

// newFake returns a server with an empty table.
func newFake(keys ...string) *fake {
	return &fake{old: true, tables: map[string]*fakeTable{"elections": {keys: keys, items: map[string]item{}}}}
}

// deafTo is a header by which a test says what conditions the server takes no notice of:
// those that begin so.
const deafTo = "X-Deaf-To"

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in fakeRequest
	body, _ := io.ReadAll(r.Body)
	if err := json.Unmarshal(body, &in); err != nil {
		refuse(w, "SerializationException", err.Error(), nil)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch _, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), "."); op {
	case "GetItem":
		f.get(w, &in)
	case "UpdateItem":
		f.update(w, r, &in)
	case "CreateTable":
		f.create(w, &in)
	case "DescribeTable":
		f.describe(w, &in)
	default:
		refuse(w, "UnknownOperationException", op, nil)
	}
}

// table returns the table, or refuses the request.
func (f *fake) table(w http.ResponseWriter, in *fakeRequest) *fakeTable {
	t := f.tables[in.TableName]
	if t == nil || time.Now().Before(t.ready) {
		refuse(w, "ResourceNotFoundException", "Requested resource not found", nil)
		return nil
	}
	return t
}

// id is an item's key as one string, and whether it is of the table's schema.
func (t *fakeTable) id(from item, exact bool) (string, bool) {
	parts := make([]string, len(t.keys))
	for i, name := range t.keys {
		s, ok := from[name]["S"].(string)
		if !ok {
			return "", false
		}
		parts[i] = s
	}
	return strings.Join(parts, "\x00"), !exact || len(from) == len(t.keys)
}

func (f *fake) get(w http.ResponseWriter, in *fakeRequest) {
	t := f.table(w, in)
	if t == nil {
		return
	}
	id, ok := t.id(in.Key, true)
	switch found := t.items[id]; {
	case !ok:
		refuse(w, "ValidationException", "The provided key element does not match the schema", nil)
	case !in.ConsistentRead:
		refuse(w, "ValidationException", "an election's reads are consistent ones", nil)
	case found == nil:
		reply(w, http.StatusOK, map[string]any{})
	default:
		reply(w, http.StatusOK, map[string]any{"Item": found})
	}
}

func (f *fake) update(w http.ResponseWriter, r *http.Request, in *fakeRequest) {
	t := f.table(w, in)
	if t == nil {
		return
	}
	id, ok := t.id(in.Key, true)
	if !ok {
		refuse(w, "ValidationException", "The provided key element does not match the schema", nil)
		return
	}
	before := t.items[id]
	if deaf := r.Header.Get(deafTo); (deaf == "" || !strings.HasPrefix(in.ConditionExpression, deaf)) && !in.holds(before) {
		more := map[string]any{}
		if f.old && before != nil && in.ReturnValuesOnConditionCheckFailure == "ALL_OLD" {
			more["Item"] = before
		}
		refuse(w, "ConditionalCheckFailedException", "The conditional request failed", more)
		return
	}
	set, ok := strings.CutPrefix(in.UpdateExpression, "SET ")
	if !ok || in.ReturnValues != "UPDATED_NEW" {
		refuse(w, "ValidationException", in.UpdateExpression, nil)
		return
	}
	after, changed := maps.Clone(in.Key), item{}
	maps.Copy(after, before)
	for term := range strings.SplitSeq(set, ", ") {
		name, value, _ := strings.Cut(term, " = ")
		changed[in.ExpressionAttributeNames[name]] = in.ExpressionAttributeValues[value]
	}
	maps.Copy(after, changed)
	t.items[id] = after
	reply(w, http.StatusOK, map[string]any{"Attributes": changed})
}

// holds evaluates the two conditions that there are.
func (in *fakeRequest) holds(before item) bool {
	c := in.ConditionExpression
	if name, ok := strings.CutPrefix(c, "attribute_not_exists("); ok {
		_, exists := before[in.ExpressionAttributeNames[strings.TrimSuffix(name, ")")]]
		return !exists
	}
	name, value, _ := strings.Cut(c, " = ")
	return before != nil && reflect.DeepEqual(before[in.ExpressionAttributeNames[name]], in.ExpressionAttributeValues[value])
}

func (f *fake) create(w http.ResponseWriter, in *fakeRequest) {
	if f.tables[in.TableName] != nil {
		refuse(w, "ResourceInUseException", "Table already exists: "+in.TableName, nil)
		return
	}
	if in.BillingMode != "PAY_PER_REQUEST" {
		refuse(w, "ValidationException", "a table for elections is billed on demand", nil)
		return
	}
	t := &fakeTable{ready: time.Now().Add(f.making), items: map[string]item{}}
	for _, k := range in.KeySchema {
		t.keys = append(t.keys, k.AttributeName)
	}
	f.tables[in.TableName] = t
	f.describe(w, in)
}

func (f *fake) describe(w http.ResponseWriter, in *fakeRequest) {
	t := f.tables[in.TableName]
	if t == nil {
		refuse(w, "ResourceNotFoundException", "Requested resource not found: Table: "+in.TableName+" not found", nil)
		return
	}
	status := "ACTIVE"
	if time.Now().Before(t.ready) {
		status = "CREATING"
	}
	reply(w, http.StatusOK, map[string]any{"Table": map[string]any{"TableName": in.TableName, "TableStatus": status}})
}

func reply(w http.ResponseWriter, status int, body map[string]any) {
	data, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	for name, values := range proof(data) {
		w.Header()[name] = values
	}
	w.WriteHeader(status)
	_, _ = w.Write(data)
}

func refuse(w http.ResponseWriter, code, message string, more map[string]any) {
	body := map[string]any{"__type": "com.amazonaws.dynamodb.v20120810#" + code, "message": message}
	maps.Copy(body, more)
	reply(w, http.StatusBadRequest, body)
}

// proof is what all answers of DynamoDB have.
func proof(body []byte) http.Header {
	return http.Header{
		"Content-Type":     {"application/x-amz-json-1.0"},
		"X-Amzn-Requestid": {rand.Text()},
		"X-Amz-Crc32":      {strconv.FormatUint(uint64(crc32.ChecksumIEEE(body)), 10)},
	}
}

// refusal is an answer of DynamoDB itself.
func refusal(status int, code string) httpfault.Fault {
	body := `{"__type":"com.amazonaws.dynamodb.v20120810#` + code + `","message":"said the server"}`
	return httpfault.Fault{Status: status, Header: proof([]byte(body)), Body: body}
}
