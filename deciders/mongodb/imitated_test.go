package mongodb_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// The imitation's commands. Each holds the command to what this package promises:
// write concern, read concern and so on.

func (s *imitation) command(ctx context.Context, name string, r *request) bson.D {
	switch name {
	case "hello", "isMaster", "ismaster":
		return s.hello()
	case "ping", "endSessions", "killCursors":
		return bson.D{{Key: "ok", Value: 1}}
	case "replSetGetConfig":
		if s.config == nil {
			return failure(13, "not authorized on admin to execute command { replSetGetConfig: 1 }")
		}
		return bson.D{{Key: "ok", Value: 1}, {Key: "config", Value: s.config}}
	case "create":
		return s.create(r)
	case "listCollections":
		return s.list(r)
	case "find":
		return s.find(ctx, r)
	case "insert":
		return s.once(name, r)
	case "findAndModify":
		return s.replicated(r, s.once(name, r))
	case "aggregate":
		return s.watch(r)
	case "getMore":
		return s.getMore(ctx, r)
	}
	s.t.Errorf("imitation: the command %s is unknown: %v", name, r.body)
	return failure(59, "no such command: "+name)
}

// once does a retryable write once, however often it is asked for.
func (s *imitation) once(name string, r *request) bson.D {
	key := ""
	if n, err := r.body.LookupErr("txnNumber"); err == nil {
		key = fmt.Sprint(r.body.Lookup("lsid"), n)
		if reply, done := s.replies[key]; done {
			return reply
		}
	}
	var reply bson.D
	if name == "insert" {
		reply = s.insert(r)
	} else {
		reply = s.update(r)
	}
	if key != "" {
		s.replies[key] = reply
	}
	return reply
}

// wants fails the test if a command lacks what it must have.
func (s *imitation) wants(r *request, value string, path ...string) {
	if v, err := r.body.LookupErr(path...); err != nil || v.String() != value {
		s.t.Errorf("imitation: %v: %v is %v, want %s", r.body, path, v, value)
	}
}

func (s *imitation) durable(r *request) {
	s.wants(r, `"majority"`, "writeConcern", "w")
	s.wants(r, `true`, "writeConcern", "j")
}

// replicated is the answer to a write, once a majority has it and all before it, or once a
// standalone's journal has. A mongod does not give the wait up when the client has gone, but when
// maxTimeMS is over.
func (s *imitation) replicated(r *request, answer bson.D) bson.D {
	n := len(s.events)
	s.waiting++
	done := s.await(s.ctx, r.limit(), func() bool { return s.common() >= n })
	s.waiting--
	if !done {
		answer = append(slices.Clone(answer), bson.E{Key: "writeConcernError", Value: bson.D{{Key: "code", Value: 50}, {Key: "codeName", Value: "MaxTimeMSExpired"}, {Key: "errmsg", Value: "operation exceeded time limit"}}})
	}
	return answer
}

func (s *imitation) find(ctx context.Context, r *request) bson.D {
	coll := r.body.Lookup("find").StringValue()
	if tailable, ok := r.body.Lookup("tailable").BooleanOK(); ok && tailable {
		batch := bson.A{}
		for _, d := range s.capped[coll] {
			batch = append(batch, d)
		}
		if len(batch) == 0 {
			return s.batch(coll, 0, "firstBatch", batch) // MongoDB: a cursor that is dead at once
		}
		return s.batch(coll, s.open(&cursor{coll: coll, next: len(batch), tail: true}), "firstBatch", batch)
	}
	s.wants(r, `"majority"`, "readConcern", "level")
	docs := s.docs
	if !s.standalone { // which knows no other reads than those of what it has
		if _, i, after := r.body.Lookup("readConcern", "afterClusterTime").TimestampOK(); after && !s.await(ctx, r.limit(), func() bool { return s.timeOf(s.common()).I >= i }) {
			return failure(50, "operation exceeded time limit")
		}
		if s.majority != nil {
			docs = s.majority.docs
		}
	}
	batch := bson.A{}
	if d := docs[coll][s.key(docs[coll], r.body.Lookup("filter", "_id").StringValue())]; d != nil {
		batch = append(batch, d)
	}
	return s.batch(coll, 0, "firstBatch", batch)
}

// key is the _id of the document that id finds, or id itself.
func (s *imitation) key(docs map[any]bson.Raw, id string) string {
	for other := range docs {
		if s.folds && strings.EqualFold(other.(string), id) {
			return other.(string)
		}
	}
	return id
}

// duplicate is the error of a write that a unique index refuses.
func duplicate(index, field string, value any) bson.D {
	text := fmt.Sprintf("E11000 duplicate key error collection: %s.%s index: %s dup key: { %s: ... }", database, collection, index, field)
	return append(failure(11000, text), bson.E{Key: "keyPattern", Value: bson.D{{Key: field, Value: 1}}}, bson.E{Key: "keyValue", Value: bson.D{{Key: field, Value: value}}})
}

func (s *imitation) insert(r *request) bson.D {
	coll := r.body.Lookup("insert").StringValue()
	doc := r.docs[0]
	if s.capped[coll] != nil {
		s.capped[coll] = append(s.capped[coll], doc)
		s.wake()
		return bson.D{{Key: "ok", Value: 1}, {Key: "n", Value: 1}}
	}
	s.t.Errorf("imitation: an insert into %s, which is not capped", coll)
	return failure(20, "no inserts")
}

// update is findAndModify with $set and $currentDate.
func (s *imitation) update(r *request) bson.D {
	if s.secondary {
		return failure(10107, "not master")
	}
	s.durable(r)
	s.wants(r, "true", "new")
	coll := r.body.Lookup("findAndModify").StringValue()
	id := r.body.Lookup("query", "_id").StringValue()
	asked := id
	id = s.key(s.docs[coll], id)
	was := s.docs[coll][id]
	if upsert, _ := r.body.Lookup("upsert").BooleanOK(); upsert && (was == nil || !was.Lookup("version").Equal(r.body.Lookup("query", "version"))) {
		return s.upsert(r, coll, asked)
	}
	if was == nil || !was.Lookup("version").Equal(r.body.Lookup("query", "version")) {
		return bson.D{{Key: "ok", Value: 1}, {Key: "value", Value: nil}}
	}
	changed := fields(r.body.Lookup("update", "$set").Document())
	changed["written"] = bson.NewDateTimeFromTime(time.Now())
	next := fields(was)
	for k, v := range changed {
		next[k] = v
	}
	now, _ := bson.Marshal(next)
	s.docs[coll][id] = now
	s.event(coll, bson.D{{Key: "operationType", Value: "update"}, {Key: "documentKey", Value: bson.D{{Key: "_id", Value: id}}},
		{Key: "updateDescription", Value: bson.D{{Key: "updatedFields", Value: changed}}}})
	return bson.D{{Key: "ok", Value: 1}, {Key: "value", Value: bson.Raw(now)}}
}

// upsert inserts what findAndModify did not find: the query's fields, and then what is set.
func (s *imitation) upsert(r *request, coll, id string) bson.D {
	if s.docs[coll][s.key(s.docs[coll], id)] != nil {
		return duplicate("_id_", "_id", id)
	}
	for _, other := range s.docs[coll] { // an upsert of this package has none of the other fields: null
		if value := other.Lookup(s.unique); s.unique != "" && value.IsZero() {
			return duplicate(s.unique+"_1", s.unique, nil)
		}
	}
	next := fields(r.body.Lookup("query").Document())
	for k, v := range fields(r.body.Lookup("update", "$set").Document()) {
		next[k] = v
	}
	next["written"] = bson.NewDateTimeFromTime(time.Now())
	doc, _ := bson.Marshal(next)
	s.put(coll, id, doc)
	return bson.D{{Key: "ok", Value: 1}, {Key: "value", Value: bson.Raw(doc)}}
}

func fields(d bson.Raw) bson.M {
	m := bson.M{}
	elements, _ := d.Elements()
	for _, e := range elements {
		m[e.Key()] = e.Value()
	}
	return m
}

// put inserts or replaces a document, or with nil deletes it.
func (s *imitation) put(coll, id string, doc bson.Raw) {
	if s.docs[coll] == nil {
		s.docs[coll] = map[any]bson.Raw{}
	}
	kind := "insert"
	if s.docs[coll][id] != nil {
		kind = "replace"
	}
	key := bson.E{Key: "documentKey", Value: bson.D{{Key: "_id", Value: id}}}
	if doc == nil {
		delete(s.docs[coll], id)
		s.event(coll, bson.D{{Key: "operationType", Value: "delete"}, key})
		return
	}
	s.docs[coll][id] = doc
	s.event(coll, bson.D{{Key: "operationType", Value: kind}, key, {Key: "fullDocument", Value: doc}})
}

// set is what an operator does by hand.
func (s *imitation) set(coll, id string, doc any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if doc == nil {
		s.put(coll, id, nil)
		return
	}
	raw, err := bson.Marshal(doc)
	if err != nil {
		s.t.Fatal(err)
	}
	s.put(coll, id, raw)
}

// touch sets one field by hand, of all that an update sets.
func (s *imitation) touch(coll, id, field string, value any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := fields(s.docs[coll][id])
	next[field] = value
	s.docs[coll][id], _ = bson.Marshal(next)
	s.event(coll, bson.D{{Key: "operationType", Value: "update"}, {Key: "documentKey", Value: bson.D{{Key: "_id", Value: id}}},
		{Key: "updateDescription", Value: bson.D{{Key: "updatedFields", Value: bson.D{{Key: field, Value: value}}}}}})
}

// event adds to the oplog.
func (s *imitation) event(coll string, e bson.D) {
	e = append(e, bson.E{Key: "_id", Value: token(len(s.events) + 1)}, bson.E{Key: "ns", Value: bson.D{{Key: "coll", Value: coll}}})
	s.events = append(s.events, nil)
	s.events[len(s.events)-1] = append(e, bson.E{Key: "clusterTime", Value: s.now()})
	s.wake()
}

func (s *imitation) wake() {
	close(s.more)
	s.more = make(chan struct{})
}

// token is a resume token: how many events have been.
func token(n int) bson.D { return bson.D{{Key: "_data", Value: fmt.Sprintf("%08d", n)}} }

func (s *imitation) open(c *cursor) int64 {
	id := int64(len(s.commands) + len(s.cursors) + 1)
	for s.cursors[id] != nil {
		id++
	}
	s.cursors[id] = c
	return id
}

// watch opens a change stream.
func (s *imitation) watch(r *request) bson.D {
	if s.standalone {
		return failure(40573, "The $changeStream stage is only supported on replica sets")
	}
	if level := r.body.Lookup("readConcern", "level").StringValue(); level != "majority" {
		return failure(72, "Aggregation stage $changeStream cannot run with a readConcern other than 'majority'. Current readConcern: "+level)
	}
	coll := r.body.Lookup("aggregate").StringValue()
	stages, _ := r.body.Lookup("pipeline").Array().Values()
	stream, match := stages[0].Document().Lookup("$changeStream").Document(), stages[1].Document().Lookup("$match", "documentKey._id")
	c := &cursor{coll: coll + "\x00" + match.StringValue(), next: len(s.events)}
	if at, err := stream.LookupErr("resumeAfter"); err == nil {
		n, err := strconv.Atoi(at.Document().Lookup("_data").StringValue())
		if err != nil {
			s.t.Errorf("imitation: %v", err)
		}
		c.next = n
	} else if at, err := stream.LookupErr("startAtOperationTime"); err == nil {
		_, i := at.Timestamp()
		c.next = max(0, int(i)-1)
	}
	return s.batch(coll, s.open(c), "firstBatch", bson.A{})
}

// getMore waits for events, for as long as it may.
func (s *imitation) getMore(ctx context.Context, r *request) bson.D {
	id := r.body.Lookup("getMore").Int64()
	coll := r.body.Lookup("collection").StringValue()
	batch := bson.A{}
	s.await(ctx, cmp.Or(r.limit(), time.Second), func() bool {
		c := s.cursors[id]
		if c != nil && !c.dead {
			batch = s.news(c)
		}
		return c == nil || c.dead || len(batch) > 0
	})
	switch c := s.cursors[id]; {
	case c == nil:
		return failure(43, "cursor not found")
	case c.dead:
		delete(s.cursors, id)
		return s.batch(coll, 0, "nextBatch", bson.A{})
	}
	return s.batch(coll, id, "nextBatch", batch)
}

// news is what has happened since a cursor was asked last.
func (s *imitation) news(c *cursor) bson.A {
	batch := bson.A{}
	if c.tail {
		for _, d := range s.capped[c.coll][c.next:] {
			batch = append(batch, d)
		}
		c.next += len(batch)
		return batch
	}
	for ; c.next < s.common(); c.next++ {
		raw, _ := bson.Marshal(s.events[c.next])
		at := bson.Raw(raw).Lookup("ns", "coll").StringValue() + "\x00" + bson.Raw(raw).Lookup("documentKey", "_id").StringValue()
		if at == c.coll {
			batch = append(batch, bson.Raw(raw))
		}
	}
	return batch
}

// invalidate ends all cursors, as where the collection is dropped.
func (s *imitation) invalidate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.cursors {
		c.dead = true
	}
	s.wake()
}

func (s *imitation) batch(coll string, id int64, name string, docs bson.A) bson.D {
	c := bson.D{{Key: "id", Value: id}, {Key: "ns", Value: "db." + coll}, {Key: name, Value: docs}}
	if k := s.cursors[id]; k != nil && !k.tail {
		c = append(c, bson.E{Key: "postBatchResumeToken", Value: token(k.next)})
	}
	return bson.D{{Key: "ok", Value: 1}, {Key: "cursor", Value: c}}
}

// list is listCollections, of the names in the filter.
func (s *imitation) list(r *request) bson.D {
	names, _ := r.body.Lookup("filter", "name", "$in").Array().Values()
	batch := bson.A{}
	for _, n := range names {
		name := n.StringValue()
		if s.capped[name] != nil {
			batch = append(batch, bson.D{{Key: "name", Value: name}, {Key: "type", Value: "collection"}, {Key: "options", Value: bson.D{{Key: "capped", Value: true}, {Key: "size", Value: 4096}}}})
		} else if s.docs[name] != nil {
			batch = append(batch, bson.D{{Key: "name", Value: name}, {Key: "type", Value: "collection"}, {Key: "options", Value: bson.D{}}})
		}
	}
	return s.batch("$cmd.listCollections", 0, "firstBatch", batch)
}

func (s *imitation) create(r *request) bson.D {
	coll := r.body.Lookup("create").StringValue()
	if s.capped[coll] != nil || s.docs[coll] != nil {
		return failure(48, "Collection already exists. NS: db."+coll)
	}
	if capped, _ := r.body.Lookup("capped").BooleanOK(); !capped {
		s.t.Errorf("imitation: a collection that is not capped: %v", r.body)
	}
	s.capped[coll] = []bson.Raw{}
	return bson.D{{Key: "ok", Value: 1}}
}
