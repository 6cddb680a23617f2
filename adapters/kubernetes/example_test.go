package kubernetes_test

import (
	"log"
	"time"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/c8e606e4/leaderelection"
	lekubernetes "github.com/c8e606e4/leaderelection/adapters/kubernetes"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// An operator whose leader is elected outside the cluster's API.
func Example() {
	restConfig, err := rest.InClusterConfig()
	if err != nil {
		log.Fatal(err)
	}
	runner := lekubernetes.NewRunner(leaderelection.Config{
		Decider:      memory.NewDecider(), // a real program uses a store that all can reach
		LeaderID:     "orders-operator-7f9c",
		MaxClockSkew: time.Second,
		DrainTimeout: time.Minute, // longer than the manager's GracefulShutdownTimeout
	})
	mgr, err := ctrl.NewManager(restConfig, runner.Options(ctrl.Options{}))
	if err != nil {
		log.Fatal(err)
	}
	// ctrl.NewControllerManagedBy(mgr)... as ever; reconcilers ask runner.View().
	log.Fatal(runner.Start(ctrl.SetupSignalHandler(), mgr))
}
