// Package zookeeper keeps an election in ZooKeeper, in one znode. A transaction, conditional on the
// znode's version, decides who leads, and a watch tells the others.
//
//	conn, err := zookeeper.Connect([]string{"a:2181", "b:2181", "c:2181"}, nil)
//	...
//	decider := zookeeper.NewDecider(conn, "/elections/web", &zookeeper.Options{CreateParents: true})
//
// The client is github.com/go-zookeeper/zk.
//
// # What is written where
//
// The record is the znode's data: zkCli.sh get shows it. The znode is persistent. A leadership
// depends on its term, and not on a session, so the end of a session ends no leadership.
//
// The znode has one child without data, "guard-" and 26 letters and digits. Versions belong to a
// znode, and start again if it is deleted and made again. So each write also checks, in the same
// transaction, that the child is there that was made with the znode. A candidate that has slept
// through all of that has lost the race, whatever the versions.
//
// A znode that does not hold a record is reported, and left alone, and so is an ephemeral one. If
// somebody has put a record there without a child, the next write makes the child. Never delete the
// znode (deleteall): the election is then empty, nothing shows that there was a record, and two may
// lead for a term. A znode of no bytes is damage, and is left alone, even one that you made in
// advance: let candidates make it.
//
// # What ZooKeeper promises
//
// "Updates are applied in the order in which they were sent" and a transaction is all or nothing
// (https://zookeeper.apache.org/doc/r3.8.0/zookeeperProgrammers.html). A write is confirmed when a
// majority of the servers has it on disk, and no server shows it before. So what a read or a watch
// shows is never undone. A candidate that reads its own record knows that it is written for good.
//
// The server that you are connected to answers reads, and may lag. ReadCurrent makes it catch up
// with the leader first (sync). That is for speed: the write decides, and a write by an old version
// is refused. A read of the feed is as new as the notice that it answers.
//
// These can lose a confirmed write, so that two may lead for up to a term:
//
//   - zookeeper.forceSync=no, and disks that lie about their caches, if a majority crashes;
//   - a single server whose disk is lost;
//   - servers that are restarted with empty or restored data.
//
// The command leaderelect doctor asks for the number of servers, see Decider.Durability.
//
// If the connection breaks during a write, it is not known whether the write has happened, or will:
// read. A call that was given up stays in the client until it is answered. It may be sent later,
// when a server is found: its condition decides.
//
// # Clocks
//
// CommitTS is the znode's mtime: the clock of the server that led, in milliseconds.
//
// # Permissions
//
// Candidates need create on the parent, or on the znode itself if it exists without a guard, and
// read and write on both znodes. Observers need read. Nobody needs admin or delete.
//
// By default, what is created is open to everybody who reaches the servers (world:anyone:cdrwa).
// Anybody who can write or delete the record decides who leads. So give Options.ACL, or acl=owner with
// credentials in an address. The digest scheme sends user and password in the clear: use TLS.
//
// # What it costs
//
// An extension is one transaction, about twice a term (515 an hour at 15 s): a round trip to the
// leader and its majority. A watch's notice does not contain the record. So each standby and
// observer answers it by one read, from the server that it is connected to, and reads as often as
// the leader writes. Otherwise it asks nothing. ReadCurrent is two requests. A first read of a
// znode lists its children once. A session sends a ping each third of its timeout.
//
// All Deciders of a process can share one connection. If you leave a feed, its watch stays with the
// client until the next write.
//
// # How the feed works
//
// It reads the znode and sets a watch in one request, so that it misses nothing. If the znode is
// missing, it watches for its creation. When the client finds another server, it sets its watches
// again there, and hears at once what it has missed. If a session is lost the feed fails, and
// candidates poll and start it again. After a silence of Options.FeedSilence it reads.
//
// The client leaves a silent server after two thirds of the session timeout. Servers keep the
// timeout between 2 and 20 of their ticks. Fail-over from a server that dies takes about a second.
package zookeeper
