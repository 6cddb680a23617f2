package mongodb

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/redact"
)

// driverOptions are the connection string options that are handed to the driver as they
// are. Those about read and write concerns are not among them: the Decider has its own.
var driverOptions = []string{
	"appName", "authMechanism", "authMechanismProperties", "authSource", "compressors", "connectTimeoutMS",
	"directConnection", "heartbeatFrequencyMS", "loadBalanced", "maxConnecting", "maxIdleTimeMS", "maxPoolSize",
	"minPoolSize", "replicaSet", "retryReads", "retryWrites", "serverMonitoringMode", "serverSelectionTimeoutMS",
	"srvMaxHosts", "srvServiceName", "ssl", "tls", "tlsAllowInvalidCertificates", "tlsAllowInvalidHostnames",
	"tlsCAFile", "tlsCertificateKeyFile", "tlsCertificateKeyFilePassword", "tlsDisableOCSPEndpointCheck", "tlsInsecure",
	"zlibCompressionLevel", "zstdCompressionLevel",
}

// minPoolSize is how many connections Open's client keeps ready: the feed's getMore is
// always out on one, and a standby's first write shall not wait for another.
const minPoolSize = 2

// Open returns the election that u names, with a client of its own, which Close
// disconnects:
//
//	mongodb://user:password@host:27017,host:27017/database/collection/election?replicaSet=rs0
//	mongodb+srv://user:password@cluster.example.net/database/collection/election
//
// The election's name is all that follows the collection; a slash in it is part of it.
// Query parameters, all optional: MongoDB's own connection string options, save those
// about read and write concerns (authSource is admin unless it is given: the path does
// not name it here, and minPoolSize is 2, see the package comment), and
//
//	linearizable=true      Options.Linearizable
//	await_time=10m         Options.AwaitTime
//	announcements=NAME     Options.Announcements; the collection is made where it is missing
//
// Open itself does no I/O, but to look up a +srv name and to make announcements. Any
// other parameter is an error, and so is whatever makes a URL useless. Credentials are
// those of u, or what authMechanism finds (MONGODB-AWS the environment, MONGODB-X509 the
// certificate).
func Open(ctx context.Context, u *url.URL) (*Decider, error) {
	p, err := parse(u)
	if err != nil {
		return nil, fmt.Errorf("leaderelection/mongodb: %s: %w: %w", redact.URL(u.String()), redact.Error(err, u.String()), leaderelection.ErrPermanent)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("leaderelection/mongodb: %s: %w", redact.URL(u.String()), redact.Error(err, u.String()))
	}
	opts := options.Client().ApplyURI(p.uri)
	// Not where u allows one connection only: the driver refuses less than the minimum.
	if most := opts.MaxPoolSize; opts.MinPoolSize == nil && (most == nil || *most == 0 || *most >= minPoolSize) {
		opts.SetMinPoolSize(minPoolSize)
	}
	client, err := mongo.Connect(opts)
	if err != nil {
		return nil, fmt.Errorf("leaderelection/mongodb: %s: %w: %w", redact.URL(u.String()), redact.Error(err, u.String()), leaderelection.ErrPermanent)
	}
	d := NewDecider(client, p.database, p.collection, p.election, &p.opts)
	d.owned = true
	if d.opts.Announcements != "" {
		if err := d.CreateAnnouncements(ctx); err != nil {
			_ = d.Close()
			return nil, err
		}
	}
	return d, nil
}

// parsed is what a URL says.
type parsed struct {
	uri                            string // the driver's
	database, collection, election string
	opts                           Options
}

func parse(u *url.URL) (*parsed, error) {
	p := &parsed{}
	if u.Scheme != "mongodb" && u.Scheme != "mongodb+srv" {
		return nil, fmt.Errorf("the scheme is %q; want mongodb://host/database/collection/election", u.Scheme)
	}
	path := strings.SplitN(strings.TrimPrefix(u.Path, "/"), "/", 3)
	if u.Host == "" || len(path) != 3 || slices.Contains(path, "") {
		return nil, errors.New("want mongodb://host/database/collection/election")
	}
	if u.Fragment != "" {
		return nil, errors.New("a # must be written %23 in a name")
	}
	p.database, p.collection, p.election = path[0], path[1], path[2]
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, err
	}
	driver := url.Values{}
	for name, values := range q {
		if len(values) != 1 || values[0] == "" {
			return nil, fmt.Errorf("parameter %q wants one value", name)
		}
		if slices.ContainsFunc(driverOptions, func(o string) bool { return strings.EqualFold(o, name) }) {
			driver[name] = values
			continue
		}
		switch v := values[0]; name {
		case "linearizable":
			if p.opts.Linearizable, err = strconv.ParseBool(v); err != nil {
				return nil, fmt.Errorf("parameter linearizable is %q; want true or false", v)
			}
		case "await_time":
			if p.opts.AwaitTime, err = time.ParseDuration(v); err != nil || p.opts.AwaitTime <= 0 {
				return nil, fmt.Errorf("parameter await_time is %q; want a duration as 5m", v)
			}
		case "announcements":
			p.opts.Announcements = v
		default:
			return nil, fmt.Errorf("parameter %q is unknown, or has no effect here; there are linearizable, await_time, announcements and MongoDB's %s",
				name, strings.Join(driverOptions, ", "))
		}
	}
	p.uri = (&url.URL{Scheme: u.Scheme, User: u.User, Host: u.Host, Path: "/", RawQuery: driver.Encode()}).String()
	return p, nil
}
