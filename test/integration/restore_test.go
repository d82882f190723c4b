package integration

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestClaimsWithDefaultVolumes(t *testing.T) {
	s := newScene(t)
	s.deploy(app{name: "web", replicas: 2, claim: "data"})
	backup := s.backup(allVolumes)
	s.lose()
	restore := s.restore(backup)
	s.completed(restore, 1)
	s.resumed(restore.Name, s.ns, "web", 2, false)
	s.hasData(s.ns, "data")
	assert.Contains(t, s.details(restore.Name), "back at 2 replicas")
	events := s.events(s.ns, "web")
	if assert.Len(t, events, 2) {
		assert.Contains(t, events[0], "HeldForRestore: Held at 0 replicas by restore "+restore.Name)
		assert.Contains(t, events[1], "ResumedAfterRestore: Resumed after restore "+restore.Name+": back at 2 replicas")
	}
}
