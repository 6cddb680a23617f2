package kubernetes_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
		Decider:      kubernetes.NewDecider(clients.CoordinationV1().RESTClient(), "default", "web", nil),
		LeaderID:     os.Getenv("POD_NAME"),
		MaxClockSkew: time.Second,
		OnElected: func(ctx context.Context, view *leaderelection.TimeView) {
			for ctx.Err() == nil && view.ValueInFuture() {
				// act, with view.ElectionNumber() as the fencing token
			}
		},
	}.Acquire(context.Background())
	log.Fatal(err)
}

// leaderLabel is what the Service in manifests/leader-service.yaml selects by.
const leaderLabel = "leaderelection/leader"

// LabelLeader gives the label to this pod, and takes it from all others that match the
// selector, such as a leader that has crashed. It goes on until view is over. Call it
// when elected.
func LabelLeader(ctx context.Context, clients clientset.Interface, namespace, selector, pod string, view *leaderelection.TimeView) error {
	pods := clients.CoreV1().Pods(namespace)
	if !view.ValueInFuture() {
		return context.Cause(ctx)
	}
	if err := label(ctx, clients, namespace, pod, `"true"`); err != nil {
		return err
	}
	others, err := pods.List(ctx, metav1.ListOptions{LabelSelector: selector + "," + leaderLabel})
	if err != nil {
		return err
	}
	for _, other := range others.Items {
		if other.Name != pod && view.ValueInFuture() {
			if err := label(ctx, clients, namespace, other.Name, "null"); err != nil {
				return err
			}
		}
	}
	return nil
}

// label sets the label of a pod, or removes it if value is null.
func label(ctx context.Context, clients clientset.Interface, namespace, pod, value string) error {
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, leaderLabel, value)
	_, err := clients.CoreV1().Pods(namespace).Patch(ctx, pod, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// A Service follows the leader: it labels its pod when it is elected, and takes the label
// away before it releases. See manifests/leader-service.yaml.
func Example_leaderLabel() {
	config, err := rest.InClusterConfig()
	if err != nil {
		log.Fatal(err)
	}
	clients, err := clientset.NewForConfig(config)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(labelled(clients, "default", "web", os.Getenv("POD_NAME")).Acquire(context.Background()))
}

// labelled is a candidate whose pod has the label while it leads.
func labelled(clients clientset.Interface, namespace, name, pod string) leaderelection.Config {
	return leaderelection.Config{
		Decider:      kubernetes.NewDecider(clients.CoordinationV1().RESTClient(), namespace, name, nil),
		LeaderID:     pod,
		MaxClockSkew: time.Second,
		OnElected: func(ctx context.Context, view *leaderelection.TimeView) {
			for LabelLeader(ctx, clients, namespace, "app=web", pod, view) != nil && view.Clock().SleepFor(ctx, time.Second) {
			}
			// act
		},
		OnOusting: func(ctx context.Context) {
			if err := label(ctx, clients, namespace, pod, "null"); err != nil {
				log.Print("the next leader takes the label: ", err)
			}
		},
	}
}
