package kubernetes_test

import (
	"log"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/c8e606e4/leaderelection"
	lekubernetes "github.com/c8e606e4/leaderelection/adapters/kubernetes"
	lease "github.com/c8e606e4/leaderelection/deciders/kubernetes"
)

// An operator whose leader is elected on a Lease, also while replicas that use
// controller-runtime's own election are replaced one by one.
func Example() {
	restConfig, err := rest.InClusterConfig()
	if err != nil {
		log.Fatal(err)
	}
	clients, err := kubernetes.NewForConfig(restConfig)
	if err != nil {
		log.Fatal(err)
	}
	runner := lekubernetes.NewRunner(leaderelection.Config{
		// The Lease that was LeaderElectionID, in its namespace; or any other store.
		Decider:  lease.NewDecider(clients.CoordinationV1().RESTClient(), "orders", "orders-operator", nil),
		LeaderID: "orders-operator-7f9c",
	})
	mgr, err := ctrl.NewManager(restConfig, runner.Options(ctrl.Options{}))
	if err != nil {
		log.Fatal(err)
	}
	// ctrl.NewControllerManagedBy(mgr)... as ever; reconcilers ask runner.View().
	log.Fatal(runner.Start(ctrl.SetupSignalHandler(), mgr))
}
