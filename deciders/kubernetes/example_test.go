package kubernetes_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// PointHere has the Service of manifests/leader-service.yaml lead to this address alone, or
// nowhere if it is empty. A write that a later leader has overtaken is refused: it is on the
// version that was read, and notes the leadership's number. Call it when elected, and
// again now and then.
func PointHere(ctx context.Context, clients clientset.Interface, namespace, name, address string, number leaderelection.ElectionNumber) error {
	const key = "leaderelection/token"
	slices := clients.DiscoveryV1().EndpointSlices(namespace)
	s, err := slices.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if by, _ := strconv.ParseUint(s.Annotations[key], 10, 64); by > uint64(number) || address == "" && by != uint64(number) {
		return nil // another's
	}
	metav1.SetMetaDataAnnotation(&s.ObjectMeta, key, fmt.Sprint(number))
	s.Endpoints = nil
	if address != "" {
		s.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{address}}}
	}
	_, err = slices.Update(ctx, s, metav1.UpdateOptions{})
	return err
}

// A Service follows the leader: it leads to the pod when that is elected, and nowhere before the
// lease is released. See manifests/leader-service.yaml. The leaderelect command does the same by
// --endpoint-slice.
func Example_leaderService() {
	config, err := rest.InClusterConfig()
	if err != nil {
		log.Fatal(err)
	}
	clients, err := clientset.NewForConfig(config)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(served(clients, "default", "web", os.Getenv("POD_NAME"), os.Getenv("POD_IP")).Acquire(context.Background()))
}

// served is a candidate to whose pod the Service leads while it leads.
func served(clients clientset.Interface, namespace, name, pod, address string) leaderelection.Config {
	var number atomic.Uint64
	return leaderelection.Config{
		Decider:  kubernetes.NewDecider(clients.CoordinationV1().RESTClient(), namespace, name, nil),
		LeaderID: pod,
		OnElected: func(ctx context.Context, view *leaderelection.TimeView) {
			number.Store(uint64(view.ElectionNumber()))
			for view.ValueInFuture() && PointHere(ctx, clients, namespace, name+"-leader", address, view.ElectionNumber()) != nil && view.Clock().SleepFor(ctx, time.Second) {
			}
			// act
		},
		OnOusting: func(ctx context.Context) {
			if err := PointHere(ctx, clients, namespace, name+"-leader", "", leaderelection.ElectionNumber(number.Load())); err != nil {
				log.Print("the Service leads here until there is a next leader: ", err)
			}
		},
	}
}
