// Package zookeeper keeps an election in ZooKeeper, in one znode. A transaction that is
// conditional on the znode's version decides who leads, and a watch tells the others.
//
//	conn, err := zookeeper.Connect([]string{"a:2181", "b:2181", "c:2181"}, nil)
//	...
//	decider := zookeeper.NewDecider(conn, "/elections/web", &zookeeper.Options{CreateParents: true})
//
// The client is github.com/go-zookeeper/zk.
//
// # What is written where
//
// The record is the znode's data, for zkCli.sh get to show. The znode is persistent: a
// leadership hangs on its term, and on no session, so a session that expires ends none. It
// has one child, "guard-" and 26 letters and digits, with no data: a version belongs to a
// znode, and begins again when that was deleted and made again. So each write also checks
// that the child is there that was made with the znode, in one transaction with it, and a
// candidate that has slept through all of that has lost the race, whatever the versions.
//
// A znode that holds no record is reported, and left alone, and so is an ephemeral one. A
// record that somebody has put there without a child is given one by the next write. Nothing
// ever deletes the znode; an operator who does (deleteall) makes the election empty, and
// two may lead for a term: nothing shows that there was a record. A znode of no bytes is
// damage, and left alone, also one that was made in advance: let candidates make it.
//
// # What ZooKeeper promises
//
// "Updates are applied in the order in which they were sent" and a transaction is all or
// nothing (https://zookeeper.apache.org/doc/r3.8.0/zookeeperProgrammers.html). A write is
// confirmed when a majority of the servers has it on disk, and no server shows it before. So
// what a read or a watch tells of is never undone, and a record of one's own that is read
// has been written for good.
//
// Reads are served by the server that one is connected to, and may lag. ReadCurrent has
// it catch up with the leader first (sync). That is for speed: a decision rests on the
// write, and a write by an old version is refused. What the feed reads is as new as the
// notice that it answers.
//
// What can lose a confirmed write, so that two may lead for up to a term: zookeeper.forceSync=no
// and disks that lie about their caches, if a majority crashes; a single server whose disk is
// lost; servers that are restarted with empty or restored data. The command leaderelect
// doctor asks for the number of servers, see Decider.Durability.
//
// When the connection breaks under a write it is not known whether that has happened, or
// will: read. A call that was given up stays in the client until it is answered, and may be
// sent later, when a server is found: its condition decides.
//
// # Clocks
//
// CommitTS is the znode's mtime: the clock of the server that led, in milliseconds.
//
// # Permissions
//
// Candidates need create on the parent, or on the znode itself if it is there without a
// guard, and read and write on both znodes; observers read. By default what is created is
// open to all who reach the servers (world:anyone:cdrwa): give Options.ACL, or acl=owner
// with credentials in an address. Whoever may write the record, or delete it, decides who
// leads. Nobody needs admin, nor delete.
//
// The digest scheme sends user and password in the clear: use TLS.
//
// # What it costs
//
// An extension is one transaction, about twice a term (515 an hour at 15 s): a round trip to
// the leader and its majority. A notice of a watch contains no record, so each standby and
// observer answers it by one read, from the server that it is connected to, and so reads as
// often as the leader writes; else it asks nothing. ReadCurrent is two requests. A first read
// of a znode lists its children once. A session sends a ping each third of its timeout.
//
// All Deciders of a process can share one connection. Of a feed that is left its watch stays
// with the client until the next write.
//
// # How the feed works
//
// It reads the znode and sets a watch in one request, so that nothing falls between. If the
// znode is missing it watches for its coming. When the client finds another server it has its
// watches set again there, and hears at once of what it has missed. If a session is lost
// the feed fails, candidates poll, and take it up again. After a silence of
// Options.FeedSilence it reads.
//
// A silent server is left after two thirds of the session timeout, which servers hold
// between 2 and 20 of their ticks. Fail-over from a server that dies takes about a second.
package zookeeper
