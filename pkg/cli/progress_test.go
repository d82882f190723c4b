package cli

import (
	"bytes"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/postrestore"
)

func reportOf(sentences ...string) postrestore.Report {
	var report postrestore.Report
	for i, sentence := range sentences {
		result := postrestore.Result{Name: types.NamespacedName{Namespace: "shop", Name: string(rune('a' + i))}, Step: postrestore.Step{Action: postrestore.Wait, Sentence: sentence}}
		if sentence == "back" {
			result.Step.Action = postrestore.Done
		}
		report.Results = append(report.Results, result)
	}
	return report
}

func progressOn(width, height int, ok bool) (*progress, *bytes.Buffer) {
	var out bytes.Buffer
	return newProgress(surroundings{
		getenv: nowhere, errOut: &out, clock: clock.RealClock{}, screen: func() (int, int, bool) { return width, height, ok },
	}), &out
}

func TestProgressWithoutTerminal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, out := progressOn(0, 0, false)
		p.observe(reportOf("0 of 1 initialised", "scaling"), nil)
		time.Sleep(7 * time.Second) //nolint:forbidigo // takes no time: synctest's clock jumps
		p.observe(reportOf("0 of 1 initialised", "back"), nil)
		time.Sleep(5 * time.Second) //nolint:forbidigo // takes no time: synctest's clock jumps
		for range 3 {               // said once
			p.observe(reportOf("0 of 1 initialised", "back"), errors.New("connection\nrefused"))
		}
		p.observe(reportOf("0 of 1 initialised", "back"), nil)
		p.observe(reportOf("0 of 1 initialised", "back"), errors.New("connection\nrefused"))
		p.note("warning: no events")
		p.note("warning: no events")
		p.end()
		assert.Equal(t, `   0s  shop/a: 0 of 1 initialised
   0s  shop/b: scaling
   7s  shop/b: back
  12s  cannot look at the cluster, trying again: connection refused
  12s  cannot look at the cluster, trying again: connection refused
warning: no events
`, out.String())
	})
}

func TestProgressOnATerminal(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		width, height int
		show          func(p *progress)
		want          string
	}{
		"a line for each, drawn over": {
			width: 80, height: 24,
			show: func(p *progress) {
				p.observe(reportOf("waiting", "scaling"), nil)
				p.observe(reportOf("waiting", "back"), nil)
			},
			want: "   0s  shop/a  [######|######|------]  waiting\n   0s  shop/b  [######|######|------]  scaling\n" +
				"\x1b[2A\x1b[J   0s  shop/b  \x1b[32m[######|######|######]\x1b[0m  back\n   0s  shop/a  [######|######|------]  waiting\n",
		},
		"a note above": {
			width: 60, height: 24,
			show: func(p *progress) {
				p.observe(reportOf("waiting"), nil)
				p.note("warning: no events")
			},
			want: "   0s  shop/a: waiting\n\x1b[1A\x1b[Jwarning: no events\n   0s  shop/a: waiting\n",
		},
		"the cluster cannot be looked at": {
			width: 60, height: 24,
			show: func(p *progress) { p.observe(reportOf("waiting"), errors.New("refused")) },
			want: "   0s  shop/a: waiting\n   0s  cannot look at the cluster, trying again: refused\n",
		},
		"a narrow one cuts lines, or they would wrap and be drawn over wrongly": {
			width: 20, height: 24,
			show: func(p *progress) { p.observe(reportOf("waiting for data"), nil) },
			want: "   0s  shop/a: wai…\n",
		},
		"a low one shows what has not ended": {
			width: 60, height: 3,
			show: func(p *progress) { p.observe(reportOf("back", "waiting", "back", "back"), nil) },
			want: "   0s  … and 3 more\n   0s  shop/b: waiting\n",
		},
		"the smallest one": {
			width: 1, height: 1,
			show: func(p *progress) { p.observe(reportOf("waiting", "waiting"), nil) },
			want: "…\n",
		},
		"the end leaves it where it is": {
			width: 60, height: 24,
			show: func(p *progress) {
				p.observe(reportOf("back"), nil)
				p.end()
				p.note("Done.")
			},
			want: "   0s  shop/a: back\nDone.\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p, out := progressOn(tc.width, tc.height, true)
				tc.show(p)
				assert.Equal(t, tc.want, out.String())
			})
		})
	}
}

func TestWarningsOfTheRunnerAreNotes(t *testing.T) {
	t.Parallel()
	p, out := progressOn(0, 0, false)
	log := p.logger()
	var group sync.WaitGroup
	for range 8 { // as from DeploymentConfigs side by side
		group.Go(func() { log.WithError(errors.New("forbidden")).Warn("Event cannot be written") })
	}
	group.Wait()
	log.WithFields(logrus.Fields{"name": "web"}).Info("Scaling")
	log.Error("Step of phase two failed")
	assert.Equal(t, "warning: Event cannot be written: forbidden\n", out.String())
}
