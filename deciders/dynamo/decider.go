package dynamo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/dynamo/internal/dynamoproof"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/internal/log/redact"
)

// The attributes of an election's item, apart from its key.
const (
	recordAttribute  = "record"
	versionAttribute = "version"
)

// Client is what a Decider needs of a *dynamodb.Client.
type Client interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error)
	// CreateTable is called only with Options.CreateTable.
	CreateTable(context.Context, *dynamodb.CreateTableInput, ...func(*dynamodb.Options)) (*dynamodb.CreateTableOutput, error)
	// DescribeTable is called only with Options.CreateTable, and by VerifyTable.
	DescribeTable(context.Context, *dynamodb.DescribeTableInput, ...func(*dynamodb.Options)) (*dynamodb.DescribeTableOutput, error)
}

var (
	_ Client                     = (*dynamodb.Client)(nil)
	_ leaderelection.RaceDecider = (*Decider)(nil)
)

// Options describes the table. The zero value is right for a table that the decider creates, or
// that was made for it.
type Options struct {
	// PartitionKey is the name of the table's partition key, a string
	// attribute. Empty: "key".
	PartitionKey string
	// SortKey is the name of the table's sort key, a string attribute. Empty:
	// the table has none.
	SortKey string
	// SortValue is the item's sort key, if there is a SortKey. Empty:
	// "leaderelection".
	SortValue string
	// CreateTable makes the first call that needs the table create it if it is missing, with
	// on-demand billing and the keys above. DynamoDB takes some seconds: until then calls fail
	// with temporary errors. Use it for trials: with your own tools you can give a table
	// encryption, deletion protection and tags.
	CreateTable bool
}

// Decider keeps one election in one item of a table. Its methods may be called by several
// goroutines at once.
type Decider struct {
	b        *backend
	election store.Election[token]
	close    func() // closes the idle connections of Open's client; nil: the client is the caller's
}

// backend is the store: one item of a table.
type backend struct {
	client Client
	table  *string
	pk, sk string // the names of the keys; sk is empty if there is none
	key    map[string]types.AttributeValue
	create bool
	call   []func(*dynamodb.Options)

	distrusted func() // told of each refusal that other credentials may cure
}

// NewDecider returns a decider for the election called key in table, which is a table's name or
// ARN. Client is a *dynamodb.Client. It brings region and credentials. Options may be nil.
// NewDecider makes no request: the first call reports a name that DynamoDB does not allow.
func NewDecider(client Client, table, key string, opts *Options) *Decider {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.PartitionKey == "" {
		o.PartitionKey = "key"
	}
	if o.SortKey != "" && o.SortValue == "" {
		o.SortValue = "leaderelection"
	}
	b := &backend{
		client: client,
		table:  aws.String(table),
		pk:     o.PartitionKey,
		sk:     o.SortKey,
		key:    map[string]types.AttributeValue{o.PartitionKey: text(key)},
		create: o.CreateTable,
		call:   []func(*dynamodb.Options){once, dynamoproof.Required},

		distrusted: func() {},
	}
	place := fmt.Sprintf("DynamoDB table %q, key %q", table, key)
	if o.SortKey != "" {
		b.key[o.SortKey] = text(o.SortValue)
		place += fmt.Sprintf(" and %q", o.SortValue)
	}
	never := &token{version: "never"}
	if c, ok := client.(interface{ Options() dynamodb.Options }); ok {
		o := c.Options()
		if o.Region != "" {
			place += " in " + o.Region
		}
		if o.BaseEndpoint != nil {
			place += " at " + redact.URL(*o.BaseEndpoint)
		} else {
			never = nil // it is Amazon's
		}
	}
	wrong := checkNames(table, key, &o)
	if client == nil {
		wrong = store.Wrong("the client is nil")
	}
	return &Decider{b: b, election: store.Election[token]{Store: b, Package: "dynamo", Ours: true, Place: place, Wrong: wrong, Never: never}}
}

// once switches the client's own retries off for one request.
func once(o *dynamodb.Options) {
	o.Retryer = aws.NopRetryer{}
	o.RetryMaxAttempts = 0 // else it would wrap the Retryer
}

// Close closes the connections of the client that Open has made. A client given to NewDecider is
// yours to close.
func (d *Decider) Close() error {
	if d.close != nil {
		d.close()
	}
	return nil
}

// Inherit implements open.Heir: a write to a server that is not known to honor conditions stays
// unproved with a new client, too.
func (d *Decider) Inherit(from leaderelection.RaceDecider) {
	if earlier, ours := from.(*Decider); ours {
		d.election.Inherit(&earlier.election)
	}
}

// String names the place: table, key and region.
func (d *Decider) String() string { return d.election.Place }

// token is a version of the item: the empty one if there is no item.
type token struct {
	version string
	commit  time.Time
}

// CommitTS is the Date of the response to the write, in whole seconds, or the zero time for a
// version that was read.
func (t token) CommitTS() time.Time { return t.commit }

// ReadCurrent implements leaderelection.RaceDecider with a strongly consistent
// GetItem.
func (d *Decider) ReadCurrent(ctx context.Context) (*leaderelection.RaceEntry, error) {
	return d.election.Read(ctx)
}

// WriteEntry implements leaderelection.RaceDecider with an UpdateItem that is conditional on the
// version. A refusal is a leaderelection.LostRaceError, with the current record if the service
// returns it (DynamoDB and DynamoDB Local do).
func (d *Decider) WriteEntry(ctx context.Context, entry *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
	return d.election.Write(ctx, entry)
}

// Load implements store.Store.
func (b *backend) Load(ctx context.Context) (s store.Stored[token], err error) {
	in := &dynamodb.GetItemInput{TableName: b.table, Key: b.key, ConsistentRead: aws.Bool(true)}
	out, err := b.client.GetItem(ctx, in, b.call...)
	if b.mayCreate(err) {
		if err = b.createTable(ctx); err == nil {
			out, err = b.client.GetItem(ctx, in, b.call...)
		}
	}
	if err != nil {
		return s, err
	}
	return b.stored(out.Item)
}

// Swap implements store.Store.
func (b *backend) Swap(ctx context.Context, at token, data []byte, e *leaderelection.RaceEntry) (none token, err error) {
	version := versionOf(e)
	in := b.update(string(data), version, at)
	out, err := b.client.UpdateItem(ctx, in, b.call...)
	if b.mayCreate(err) { // without a table nothing can have been written
		if err = b.createTable(ctx); err == nil {
			out, err = b.client.UpdateItem(ctx, in, b.call...)
		}
	}
	if err != nil {
		return none, b.refused(err)
	}
	if written, ok := out.Attributes[versionAttribute].(*types.AttributeValueMemberS); !ok || written.Value != version {
		return none, errNotWritten
	}
	t := token{version: version}
	t.commit, _ = awsmiddleware.GetServerTime(out.ResultMetadata)
	return t, nil
}

// update is the write of a record, on condition that the version is that of t. To
// create is conditional on the key, not on our own attributes: what lies there need
// not be ours. The answer must repeat what it wrote: the version is new with each
// write, so that no other answer can be taken for this one's.
func (b *backend) update(data, version string, at token) *dynamodb.UpdateItemInput {
	in := &dynamodb.UpdateItemInput{
		TableName:                           b.table,
		Key:                                 b.key,
		UpdateExpression:                    aws.String("SET #r = :r, #v = :v"),
		ConditionExpression:                 aws.String("#v = :was"),
		ExpressionAttributeNames:            map[string]string{"#r": recordAttribute, "#v": versionAttribute},
		ExpressionAttributeValues:           map[string]types.AttributeValue{":r": text(data), ":v": text(version)},
		ReturnValues:                        types.ReturnValueUpdatedNew,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
	if at.version == "" {
		in.ConditionExpression = aws.String("attribute_not_exists(#k)")
		in.ExpressionAttributeNames["#k"] = b.pk
	} else {
		in.ExpressionAttributeValues[":was"] = text(at.version)
	}
	return in
}

// versionOf returns a new version for an entry: readable, and unique. It is no
// secret, so that the random numbers need not be hard to guess.
func versionOf(e *leaderelection.RaceEntry) string {
	return fmt.Sprintf("%d.%d.%s", e.ElectionNumber, e.Extension, strconv.FormatUint(rand.Uint64(), 36))
}

// stored is what an item says.
func (b *backend) stored(item map[string]types.AttributeValue) (s store.Stored[token], err error) {
	if len(item) == 0 {
		return store.Stored[token]{None: true}, nil
	}
	var data, version string
	for name, value := range item {
		attribute, isText := value.(*types.AttributeValueMemberS)
		switch name {
		case b.pk, b.sk:
		case recordAttribute, versionAttribute:
			if !isText {
				return s, notOurs("attribute %q is not a string", name)
			}
			if name == recordAttribute {
				data = attribute.Value
			} else {
				version = attribute.Value
			}
		default:
			return s, notOurs("it has an attribute %q, which a write would lose; elections share no item with anything else", name)
		}
	}
	if version == "" {
		return s, notOurs("it has no attribute %q", versionAttribute)
	}
	return store.Stored[token]{Data: []byte(data), At: token{version: version}}, nil
}

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
