package legrpc

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/c8e606e4/leaderelection"
)

// Health is a gRPC health service for a process whose services must be used only while it leads. It
// reports SERVING while the view lasts and leadership is not being given up, and otherwise
// NOT_SERVING. Register it with healthpb.RegisterHealthServer(server, health). As a readiness
// probe it stalls rollouts with maxUnavailable: 0: see the package's documentation.
type Health struct {
	healthpb.UnimplementedHealthServer
	server   *server
	services []string
}

var _ healthpb.HealthServer = (*Health)(nil)

// NewHealth returns a Health for the services with the given full names. The name "", which means
// the whole process, is always included.
func NewHealth(c leaderelection.Candidate, services ...string) *Health {
	return &Health{server: newServer(c, nil), services: slices.Concat(services, []string{""})}
}

func (h *Health) now() healthpb.HealthCheckResponse_ServingStatus {
	if h.server.admits(h.server.candidate.View()) {
		return healthpb.HealthCheckResponse_SERVING
	}
	return healthpb.HealthCheckResponse_NOT_SERVING
}

// Check reports whether this process leads now.
func (h *Health) Check(_ context.Context, r *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	if !slices.Contains(h.services, r.GetService()) {
		return nil, status.Errorf(codes.NotFound, "unknown service %q", r.GetService())
	}
	return &healthpb.HealthCheckResponse{Status: h.now()}, nil
}

// List reports for every service whether this process leads now.
func (h *Health) List(context.Context, *healthpb.HealthListRequest) (*healthpb.HealthListResponse, error) {
	all := map[string]*healthpb.HealthCheckResponse{}
	for _, name := range h.services {
		all[name] = &healthpb.HealthCheckResponse{Status: h.now()}
	}
	return &healthpb.HealthListResponse{Statuses: all}, nil
}

// followEvery is how often a Watch looks at the view, which sends no news.
const followEvery = 50 * time.Millisecond

// Watch sends the current state, and then each change within 50 ms.
func (h *Health) Watch(r *healthpb.HealthCheckRequest, stream grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	look := h.now
	if !slices.Contains(h.services, r.GetService()) {
		look = func() healthpb.HealthCheckResponse_ServingStatus {
			return healthpb.HealthCheckResponse_SERVICE_UNKNOWN
		}
	}
	clock := h.server.candidate.View().Clock()
	last := healthpb.HealthCheckResponse_UNKNOWN
	for {
		if now := look(); now != last {
			if err := stream.Send(&healthpb.HealthCheckResponse{Status: now}); err != nil {
				return err
			}
			last = now
		}
		if !clock.SleepFor(stream.Context(), followEvery) {
			return status.FromContextError(stream.Context().Err()).Err()
		}
	}
}
