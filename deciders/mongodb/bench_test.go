package mongodb_test

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/record"
	"github.com/c8e606e4/leaderelection/internal/feedtest"
	"github.com/c8e606e4/leaderelection/internal/stores"
)

// The same as Bench's Read and Write, by the bare driver: what the decider adds is the
// difference. FerretDB is not MongoDB: the difference counts, not the sum.
func BenchmarkDriver(b *testing.B) {
	coll := client(b, stores.FerretDB(b).URI).Database(database).Collection(collection)
	data, err := record.Marshal(feedtest.State(1, nil))
	if err != nil {
		b.Fatal(err)
	}
	version := bson.NewObjectID()
	if _, err := coll.InsertOne(b.Context(), bson.D{{Key: "_id", Value: "web"}, {Key: "version", Value: version}, {Key: "record", Value: string(data)}}); err != nil {
		b.Fatal(err)
	}
	b.Run("FindOne", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := coll.FindOne(b.Context(), bson.D{{Key: "_id", Value: "web"}}).Raw(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("FindOneAndUpdate", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			next := bson.NewObjectID()
			if _, err := coll.FindOneAndUpdate(b.Context(), bson.D{{Key: "_id", Value: "web"}, {Key: "version", Value: version}},
				bson.D{{Key: "$set", Value: bson.D{{Key: "version", Value: next}, {Key: "record", Value: string(data)}}}},
				options.FindOneAndUpdate().SetReturnDocument(options.After)).Raw(); err != nil {
				b.Fatal(err)
			}
			version = next
		}
	})
}

func BenchmarkDecider(b *testing.B) {
	decidertest.Bench(b, withoutFeed(elections(stores.FerretDB(b).URI, nil)))
}

func BenchmarkDeciderOnImitation(b *testing.B) {
	decidertest.Bench(b, elections(imitate(b).uri(), nil))
}
