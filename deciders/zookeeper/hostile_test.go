package zookeeper_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/zookeeper"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/storetest"
)

// lying is a connection whose answers are changed on their way, and counted.
type lying struct {
	*zk.Conn
	multi                func([]zk.MultiResponse, error) ([]zk.MultiResponse, error)
	get                  func([]byte, *zk.Stat, error) ([]byte, *zk.Stat, error)
	getW                 func([]byte, *zk.Stat, <-chan zk.Event, error) ([]byte, *zk.Stat, <-chan zk.Event, error)
	sync                 func(string, error) (string, error)
	writes, reads, looks atomic.Int64 // looks are reads with a watch
}

func (l *lying) Multi(ops ...any) ([]zk.MultiResponse, error) {
	l.writes.Add(1)
	a, err := l.Conn.Multi(ops...)
	if l.multi != nil {
		return l.multi(a, err)
	}
	return a, err
}

func (l *lying) Get(path string) ([]byte, *zk.Stat, error) {
	l.reads.Add(1)
	data, stat, err := l.Conn.Get(path)
	if l.get != nil {
		return l.get(data, stat, err)
	}
	return data, stat, err
}

func (l *lying) GetW(path string) ([]byte, *zk.Stat, <-chan zk.Event, error) {
	l.looks.Add(1)
	data, stat, watch, err := l.Conn.GetW(path)
	if l.getW != nil {
		return l.getW(data, stat, watch, err)
	}
	return data, stat, watch, err
}

func (l *lying) Sync(path string) (string, error) {
	path, err := l.Conn.Sync(path)
	if l.sync != nil {
		return l.sync(path, err)
	}
	return path, err
}

// An answer to a write that ZooKeeper would not give is neither a success nor a lost race.
func TestFalseAnswersToWrites(t *testing.T) {
	c := client(t, stores.ZooKeeper(t).Addr)
	stat := func(change func(*zk.Stat)) func(a []zk.MultiResponse, err error) ([]zk.MultiResponse, error) {
		return func(a []zk.MultiResponse, err error) ([]zk.MultiResponse, error) {
			if err == nil {
				change(a[len(a)-1].Stat)
			}
			return a, err
		}
	}
	for name, lie := range map[string]func([]zk.MultiResponse, error) ([]zk.MultiResponse, error){
		"nothing": func([]zk.MultiResponse, error) ([]zk.MultiResponse, error) { return nil, nil },
		"too few": func(a []zk.MultiResponse, err error) ([]zk.MultiResponse, error) { return a[:1], err },
		"no stat": func(a []zk.MultiResponse, err error) ([]zk.MultiResponse, error) {
			a[len(a)-1].Stat = nil
			return a, err
		},
		"another version":  stat(func(s *zk.Stat) { s.Version += 7 }),
		"the same version": stat(func(s *zk.Stat) { s.Version-- }),
		"another length":   stat(func(s *zk.Stat) { s.DataLength++ }),
		"another znode":    stat(func(s *zk.Stat) { s.Czxid, s.Mzxid = s.Czxid-1, s.Mzxid+1 }),
		"no transaction":   stat(func(s *zk.Stat) { s.Czxid, s.Mzxid = 0, 0 }),
		"an error of a part": func(a []zk.MultiResponse, err error) ([]zk.MultiResponse, error) {
			a[0].Error = errors.New("odd")
			return a, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := &lying{Conn: c}
			path := "/" + feedtest.Unique()
			d := zookeeper.NewDecider(l, path, nil)
			l.multi = lie
			feedtest.Passing(t, feedtest.WriteError(t, d, 1, nil), path)
			l.multi = nil
			token := feedtest.Read(t, d).Token // it had happened
			l.multi = lie
			feedtest.Passing(t, feedtest.WriteError(t, d, 2, token), path)
		})
	}
}

func TestFalseAnswersToReads(t *testing.T) {
	c := client(t, stores.ZooKeeper(t).Addr)
	feedtest.Write(t, decider(c), 1, nil)
	stat := func(change func(*zk.Stat)) func([]byte, *zk.Stat, error) ([]byte, *zk.Stat, error) {
		return func(data []byte, s *zk.Stat, err error) ([]byte, *zk.Stat, error) { change(s); return data, s, err }
	}
	for name, l := range map[string]*lying{
		"empty":           {get: func([]byte, *zk.Stat, error) ([]byte, *zk.Stat, error) { return nil, &zk.Stat{}, nil }},
		"cut short":       {get: func(data []byte, s *zk.Stat, err error) ([]byte, *zk.Stat, error) { return data[:9], s, err }},
		"no transaction":  {get: stat(func(s *zk.Stat) { s.Czxid = 0 })},
		"written before":  {get: stat(func(s *zk.Stat) { s.Mzxid = s.Czxid - 1 })},
		"of another path": {sync: func(_ string, err error) (string, error) { return "/f", err }},
		"made again":      {get: stat(func(s *zk.Stat) { s.Czxid-- })},
	} {
		l.Conn = c
		_, err := decider(l).ReadCurrent(t.Context())
		if feedtest.Passing(t, err, "/e"); t.Failed() {
			t.Fatalf("that was: %s", name)
		}
	}
	for _, change := range []func(*zk.Stat){func(s *zk.Stat) { s.EphemeralOwner = 7 }, func(s *zk.Stat) { s.Version = -1 }} {
		feedtest.Permanent(t, feedtest.ReadError(t, decider(&lying{Conn: c, get: stat(change)})), "/e")
	}
}

// A feed that never gets to know what is there ends, and does not ask on and on.
func TestNeverTheSame(t *testing.T) {
	c := client(t, stores.ZooKeeper(t).Addr)
	feedtest.Write(t, decider(c), 1, nil)
	for _, gone := range []bool{false, true} {
		l := &lying{Conn: c, getW: func(data []byte, stat *zk.Stat, watch <-chan zk.Event, err error) ([]byte, *zk.Stat, <-chan zk.Event, error) {
			if gone { // though it is there when one looks whether it is
				return nil, nil, nil, zk.ErrNoNode
			}
			stat.Czxid--
			return data, stat, watch, err
		}}
		feedtest.Passing(t, feedtest.Next(t, feedtest.Follow(t, decider(l))).Err, "/e", "made again")
		if n := l.looks.Load(); n > 5 {
			t.Errorf("it was read %d times", n)
		}
	}
}

// Versions have 32 bits. The write after the last one is not made: it would be followed by
// versions that ZooKeeper takes for any.
func TestLastVersion(t *testing.T) {
	c := client(t, stores.ZooKeeper(t).Addr)
	feedtest.Write(t, decider(c), 1, nil)
	l := &lying{Conn: c, get: func(data []byte, s *zk.Stat, err error) ([]byte, *zk.Stat, error) {
		s.Version = math.MaxInt32
		return data, s, err
	}}
	d := decider(l)
	feedtest.Permanent(t, feedtest.WriteError(t, d, 2, feedtest.Read(t, d).Token), "/e", "2 to the 31")
	if l.writes.Load() > 0 {
		t.Error("it was sent")
	}
}

// A client that hangs keeps nobody for longer than a ctx, nor many goroutines.
func TestHangingClient(t *testing.T) {
	c := client(t, stores.ZooKeeper(t).Addr)
	feedtest.Write(t, decider(c), 1, nil)
	hang, hanging := make(chan struct{}), atomic.Int64{}
	d := decider(&lying{Conn: c, sync: func(path string, err error) (string, error) {
		hanging.Add(1)
		<-hang
		return path, err
	}})
	for range 40 {
		if _, err := d.ReadCurrent(storetest.Within(t, 5*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	}
	if n := hanging.Load(); n > 16 {
		t.Errorf("%d calls are under way", n)
	}
	close(hang)
	feedtest.Read(t, d)
}

// What answers and is no ZooKeeper neither ends the program nor takes its memory.
func TestOtherServers(t *testing.T) {
	packet := func(size uint32, body int) []byte {
		return append(binary.BigEndian.AppendUint32(nil, size), bytes.Repeat([]byte{0}, body)...)
	}
	// The answer to a connection: a session of 5 s, with a password of 16 bytes.
	session := packet(36, 36)
	binary.BigEndian.PutUint32(session[8:], 5000)
	session[19], session[23] = 1, 16
	for name, answer := range map[string][]byte{
		"HTTP":                       []byte("HTTP/1.1 400 Bad Request\r\n\r\n"),
		"a greeting":                 []byte("220 mail.example.com ESMTP\r\n"),
		"nothing":                    nil,
		"an empty packet":            packet(0, 0),
		"a session that is cut":      packet(36, 10),
		"a short packet":             append(bytes.Clone(session), packet(3, 3)...),
		"an event of 4 bytes":        append(bytes.Clone(session), 0, 0, 0, 4, 0xff, 0xff, 0xff, 0xff),
		"a packet of 4 GB":           append(bytes.Clone(session), packet(0xffffffff, 0)...),
		"an answer to no request":    append(bytes.Clone(session), packet(16, 16)...),
		"an event that is no event":  append(bytes.Clone(session), append(packet(17, 0), append(bytes.Repeat([]byte{0xff}, 4), make([]byte, 13)...)...)...),
		"zeros, and more than asked": make([]byte, 1<<16),
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			served := make(chan struct{})
			go func() {
				defer close(served)
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					_, _ = c.Read(make([]byte, 100))
					_, _ = c.Write(answer)
					_, _ = io.CopyN(io.Discard, c, 1)
					_ = c.Close()
				}
			}()
			d := zoo.Opened(t, "zookeeper://"+l.Addr().String()+"/e?session_timeout=300ms")
			e, err := d.ReadCurrent(storetest.Within(t, time.Second))
			feedtest.Passing(t, err, "/e")
			if e != nil || errors.Is(err, leaderelection.ErrLostRace) {
				t.Errorf("%+v, %v", e, err)
			}
			_ = l.Close()
			<-served
		})
	}
}

// A client that finds its server again says from which transaction on it watches: from the last
// that it knew before. Requests that wait for the connection are answered only after that. The
// race detector sees it otherwise, in one of some hundred connections.
func TestWatchesComeFirst(t *testing.T) {
	addr := stores.ZooKeeper(t).Addr
	ways := []*stores.Relay{stores.NewRelay(t, addr), stores.NewRelay(t, addr)} // of two the client tries the other one at once
	conn := client(t, ways[0].Addr, ways[1].Addr)
	if _, err := conn.Create("/watched", nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	for range 60 {
		_, _, watch, err := conn.GetW("/watched")
		if err != nil {
			continue
		}
		var all sync.WaitGroup
		for _, way := range ways {
			way.Refuse()
			way.Heal()
		}
		for range 4 {
			all.Go(func() {
				for range 20 {
					_, _, _ = conn.Exists("/")
				}
			})
		}
		all.Wait()
		select {
		case e := <-watch:
			t.Errorf("the watch is over: %v", e)
		default:
		}
	}
}
