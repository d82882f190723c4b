package disconnect_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/disconnect"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/testkit"
)

func FuzzRecordedReadsWhatIsWritten(f *testing.F) {
	f.Add(int32(0), false)
	f.Add(int32(1), true)
	f.Add(int32(2147483647), false)
	f.Fuzz(func(t *testing.T, replicas int32, paused bool) {
		originals := disconnect.Originals{Replicas: replicas, Paused: paused}
		got, ok, err := disconnect.Recorded(originals.Annotations())
		switch {
		case replicas < 0:
			if err == nil {
				t.Errorf("a record of %d replicas is read without an error", replicas)
			}
		case err != nil || !ok || got != originals:
			t.Errorf("wrote %+v, read %+v, %v, %v", originals, got, ok, err)
		}
	})
}

func FuzzRecordedNeverGuesses(f *testing.F) {
	f.Add("3", "true")
	f.Add("", "")
	f.Add("-1", "false")
	f.Add("99999999999", "null")
	f.Fuzz(func(t *testing.T, replicas, paused string) {
		got, ok, err := disconnect.Recorded(map[string]string{
			"oadp.openshift.io/original-replicas": replicas, "oadp.openshift.io/original-paused": paused,
		})
		if ok == (err != nil) {
			t.Errorf("%q, %q: ok %v with error %v", replicas, paused, ok, err)
		}
		if err != nil && got != (disconnect.Originals{}) || got.Replicas < 0 {
			t.Errorf("%q, %q: read as %+v", replicas, paused, got)
		}
	})
}

func FuzzLabelIsValid(f *testing.F) {
	for _, name := range []string{"r", strings.Repeat("a", 63), strings.Repeat("a", 64), strings.Repeat("b.", 126) + "b", "a-b.c"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if len(validation.IsDNS1123Subdomain(name)) > 0 {
			t.Skip("the API server accepts no Restore of that name")
		}
		owner := disconnect.Owner{Restore: types.NamespacedName{Namespace: "openshift-adp", Name: name}, UID: "u"}
		if problems := validation.IsValidLabelValue(owner.Label()); len(problems) > 0 {
			t.Errorf("label %q of restore %q: %v", owner.Label(), name, problems)
		}
		item := &unstructured.Unstructured{Object: map[string]any{}}
		disconnect.Detach(item, "web", owner)
		if !owner.Marked("oadp.openshift.io/disconnected-from-dc", item.GetLabels(), item.GetAnnotations()) {
			t.Errorf("restore %q does not know the mark it has set: %v", name, item.Object)
		}
	})
}

// FuzzEditsNeverPanic gives every edit of an item arbitrary JSON: Velero does not validate what a backup holds, and a
// panic would take the items of all other plugin calls of the process with it.
func FuzzEditsNeverPanic(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"metadata":null,"spec":null}`, `{"metadata":[],"spec":7}`, `{"metadata":{"labels":[],"annotations":"x"},"spec":{"nodeSelector":7}}`,
		`{"metadata":{"labels":{"deployment":7}},"spec":{"triggers":[null,"x",{"imageChangeParams":{"from":{"namespace":"shop"}}}]}}`,
		`{"spec":{"triggers":{"a":1},"paused":"yes","replicas":"3"}}`, `{"spec":{"triggers":null}}`,
	} {
		f.Add([]byte(seed), []byte(seed))
	}
	f.Fuzz(func(t *testing.T, data, other []byte) {
		item, backup := decode(data), decode(other)
		if item == nil || backup == nil {
			t.Skip("no JSON object")
		}
		before, owner := backup.DeepCopy(), testkit.OwnerNamed("r")
		_, _ = disconnect.MapTriggers(item.DeepCopy(), backup, map[string]string{"shop": "shop-dr"})
		if diff := cmp.Diff(before.Object, backup.Object); diff != "" {
			t.Errorf("MapTriggers changed the item as backed up:\n%s", diff)
		}
		for _, verdict := range []disconnect.Verdict{disconnect.Held, disconnect.Released, disconnect.Untouched} {
			decision := disconnect.DCDecision{Decision: disconnect.Decision{Verdict: verdict}, Originals: disconnect.Originals{Replicas: 3, Paused: true}}
			_ = decision.Apply(item.DeepCopy(), owner)
		}
		disconnect.Detach(item.DeepCopy(), "web", owner)
	})
}

// decode returns an item as Velero hands it over, nil for what is no JSON object.
func decode(data []byte) *unstructured.Unstructured {
	item := &unstructured.Unstructured{}
	if err := json.Unmarshal(data, &item.Object); err != nil || item.Object == nil {
		return nil
	}
	return item
}
