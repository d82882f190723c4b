package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/bed"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/standin/node"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/test/standin/openshift"
)

// How long things take on the stand-in for a node: long enough to be seen.
const (
	volumeRestoreTakes = 4 * time.Second
	podEndsIn          = time.Second
	podStartsIn        = 2 * time.Second
)

// standInGround plays on the stand-in for a node: no container runs, and what a claim holds is written and read past the application.
type standInGround struct {
	built
	bed  *bed.Bed
	node *node.Node
}

func (*standInGround) scene() scene {
	return scene{
		real: everywhere,
		standIns: fmt.Sprintf("OpenShift's DeploymentConfig controllers, and a node with its node-agent. No container runs: "+
			"a volume restore takes %.0f s, a pod ends in %.0f s and starts in %.0f s",
			volumeRestoreTakes.Seconds(), podEndsIn.Seconds(), podStartsIn.Seconds()),
		way: "through its claim",
	}
}

func (g *standInGround) build(ctx context.Context) (err error) {
	if g.built, err = buildHere(ctx, nil); err != nil {
		return err
	}
	if _, err := bed.Tools(ctx); err != nil {
		return fmt.Errorf("build the programs of the test bed: %w", err)
	}
	return nil
}

func (g *standInGround) open(ctx context.Context) (*cluster, error) {
	return openCluster(ctx, bed.Options{}, openshift.Options{}, func(ctx context.Context, b *bed.Bed) (func(), error) {
		var err error
		g.bed = b
		g.node, err = node.Run(ctx, b.RESTConfig(), node.Options{
			VeleroNamespace: b.VeleroNamespace(),
			Restore:         volumeRestoreTakes, Terminate: podEndsIn, Start: podStartsIn,
		})
		if err != nil {
			return nil, err
		}
		end := func() { _ = g.node.Stop() } // it ends because it is told to
		if err := g.awaitNodeAgent(ctx); err != nil {
			end()
			return nil, err
		}
		return end, nil
	})
}

// awaitNodeAgent waits until Velero takes the node for one that can back up volumes.
func (g *standInGround) awaitNodeAgent(ctx context.Context) error {
	return await(ctx, func(ctx context.Context) error {
		var agent appsv1.DaemonSet
		if err := g.bed.Client().Get(ctx, client.ObjectKey{Namespace: g.bed.VeleroNamespace(), Name: "node-agent"}, &agent); err != nil {
			return err
		}
		if agent.Status.NumberReady < 1 {
			return errors.New("node-agent is not ready")
		}
		return nil
	})
}

func (g *standInGround) place(ctx context.Context, order string) error {
	held, err := g.node.Read(ctx, shop, claim)
	if err != nil {
		return err
	}
	return g.node.Write(ctx, shop, claim, held+order+"\n")
}

func (g *standInGround) orders(ctx context.Context) ([]string, error) {
	held, err := g.node.Read(ctx, shop, claim)
	return lines(held), err
}

func (g *standInGround) addPlugin(ctx context.Context) error { return g.bed.AddPlugin(ctx, g.plugin()) }

// lines splits a text of whole lines.
func lines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}
