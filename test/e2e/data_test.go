package e2e

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
)

// sharedClaim: three pods write to one claim. Velero backs it up through one of them and fills it through that one: it alone
// is restored, and then there are three again.
func sharedClaim(s *scene) {
	a := app{name: "web", replicas: 3}
	s.deploy(a)
	s.backup(allVolumes)
	s.lose()
	restore := s.restore()
	s.completed(restore, 1)
	assert.Contains(s.t, s.details(restore.Name), "back at 3 replicas")
	s.back(restore.Name, a)
}

// oneClaim: one pod, and a volume that must be free of it before the next one can have it.
func oneClaim(s *scene) {
	a := app{name: "db", replicas: 1}
	s.deploy(a)
	s.backup(allVolumes)
	s.lose()
	restore := s.restore()
	s.completed(restore, 1)
	s.back(restore.Name, a)
}

// optIn: the pod itself asks for its volume to be backed up.
func optIn(s *scene) {
	a := app{name: "db", replicas: 1, annotations: map[string]string{velerov1.VolumesToBackupAnnotation: dataMount.Name}}
	s.deploy(a)
	s.backup()
	s.lose()
	restore := s.restore()
	s.completed(restore, 1)
	s.back(restore.Name, a)
}

// paused: it must come up, which a paused DeploymentConfig does not, and be paused again.
func paused(s *scene) {
	a := app{name: "web", replicas: 2, paused: true}
	s.deploy(a)
	s.backup(allVolumes)
	s.lose()
	restore := s.restore()
	s.completed(restore, 1)
	assert.Contains(s.t, s.details(restore.Name), "back at 2 replicas, paused")
	s.back(restore.Name, a)
}

// otherNamespace: the application is restored beside the one that it is a copy of, which nobody touches.
func otherNamespace(s *scene) {
	a := app{name: "web", replicas: 2}
	s.deploy(a)
	s.backup(allVolumes)
	source := s.ns
	before := s.revisions(a)
	s.ns = source + "-copy"
	restore := s.restore("--namespace-mappings=" + source + ":" + s.ns)
	s.completed(restore, 1)
	s.back(restore.Name, a)

	s.ns = source
	assert.Equal(s.t, before, s.revisions(a), "the source is as it was")
	pods, err := s.pods(s.t.Context(), a)
	require.NoError(s.t, err)
	for i := range pods {
		assert.True(s.t, hasCondition(&pods[i], corev1.PodReady), pods[i].Name)
		assert.Equal(s.t, s.written[a.name], s.sum(&pods[i]))
	}
}
