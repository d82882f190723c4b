package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/bed"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/standin/openshift"
)

// Images, which the node has no registry to pull from.
const (
	shopImage     = "test-bed.invalid/orders:demo"
	deployerImage = "test-bed.invalid/deployer:demo"
	pluginImage   = "test-bed.invalid/" + pluginBinary + ":demo"
)

// Programs in bin/.
const (
	ordersBinary   = "demo-orders"
	deployerBinary = "demo-deployer"
)

// requestTimeout bounds a request to the application, which answers in milliseconds if it is there.
const requestTimeout = time.Second

// nodeGround plays on a real node: the application is asked through its Service, like by any of its clients.
type nodeGround struct {
	built
	bed  *bed.Bed
	http *http.Client
}

func (*nodeGround) scene() scene {
	return scene{
		real: everywhere + ". A node with containerd, kubelet, kube-scheduler, kube-proxy, a provisioner of volumes and Velero's " +
			"node-agent: containers run, and bytes move",
		standIns: "OpenShift's DeploymentConfig controllers; their deployer pods run",
		way:      "through its Service",
		added:    []string{"velero", "plugin", "add", pluginImage, "--confirm"},
		serves:   true,
	}
}

func (g *nodeGround) build(ctx context.Context) (err error) {
	if g.built, err = buildHere(ctx, map[string]string{
		ordersBinary:   "./test/demo/orders",
		deployerBinary: "./test/standin/openshift/cmd/deployer",
	}); err != nil {
		return err
	}
	if _, err := bed.Tools(ctx); err != nil {
		return fmt.Errorf("build the programs of the test bed: %w", err)
	}
	if _, err := bed.NodeTools(ctx); err != nil {
		return fmt.Errorf("build the programs of the node: %w", err)
	}
	return nil
}

func (g *nodeGround) open(ctx context.Context) (*cluster, error) {
	images := []bed.Image{
		{
			Reference: shopImage, User: "65532:65532",
			Files: map[string]string{"/orders": filepath.Join(g.dir, ordersBinary)}, Entrypoint: []string{"/orders"},
		},
		{
			Reference: deployerImage,
			Files:     map[string]string{"/deployer": filepath.Join(g.dir, deployerBinary)}, Entrypoint: []string{"/deployer"},
		},
		// As in the Dockerfile.
		{
			Reference: pluginImage, User: "65532:65532",
			Files: map[string]string{"/" + pluginBinary: g.plugin()}, Entrypoint: []string{"/" + pluginBinary, "install", "/target"},
		},
	}
	options := bed.Options{Node: &bed.NodeOptions{Images: images}}
	c, err := openCluster(ctx, options, openshift.Options{DeployerImage: deployerImage, DeployersInPods: true}, nil)
	if err != nil {
		return nil, err
	}
	g.bed = c.Bed
	g.http = &http.Client{Timeout: requestTimeout, Transport: &http.Transport{
		DialContext:       func(ctx context.Context, _, address string) (net.Conn, error) { return c.DialNode(ctx, address) },
		DisableKeepAlives: true, // each request is a new choice among the pods
	}}
	return c, nil
}

func (g *nodeGround) place(ctx context.Context, order string) error {
	_, err := g.ask(ctx, http.MethodPost, order)
	return err
}

func (g *nodeGround) orders(ctx context.Context) ([]string, error) {
	held, err := g.ask(ctx, http.MethodGet, "")
	return lines(held), err
}

// ask sends a request to the application at the address of its Service, and returns the answer.
func (g *nodeGround) ask(ctx context.Context, method, body string) (string, error) {
	var service corev1.Service
	if err := g.bed.Client().Get(ctx, client.ObjectKey{Namespace: shop, Name: shop}, &service); err != nil {
		return "", fmt.Errorf("get Service %s: %w", shop, err)
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://"+service.Spec.ClusterIP+"/orders", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	response, err := g.http.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", method, request.URL, err)
	}
	if response.StatusCode >= http.StatusMultipleChoices {
		return "", fmt.Errorf("%s %s: %s: %s", method, request.URL, response.Status, answer)
	}
	return string(answer), nil
}

func (g *nodeGround) addPlugin(ctx context.Context) error {
	if _, err := g.bed.Velero(ctx, g.scene().added[1:]...); err != nil {
		return err
	}
	return g.bed.AwaitVelero(ctx)
}
