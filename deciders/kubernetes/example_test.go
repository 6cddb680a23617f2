package kubernetes_test

import (
	"context"
	"log"
	"os"
	"time"

	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/kubernetes"
)

// A pod that is a candidate, with its service account: see manifests/candidate.yaml.
func Example() {
	config, err := rest.InClusterConfig()
	if err != nil {
		log.Fatal(err)
	}
	clients, err := clientset.NewForConfig(config)
	if err != nil {
		log.Fatal(err)
	}
	err = leaderelection.Config{
		Decider:  kubernetes.NewDecider(clients.CoordinationV1().RESTClient(), "default", "web", nil),
		LeaderID: os.Getenv("POD_NAME"),
		OnElected: func(ctx context.Context, view *leaderelection.TimeView) {
			for ctx.Err() == nil && view.ValueInFuture() {
				// act, with view.ElectionNumber() as the fencing token
				view.Clock().SleepFor(ctx, time.Second)
			}
		},
	}.Acquire(context.Background())
	log.Fatal(err)
}
