package postrestore

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/builder"
)

func restoreOf(uid string) *velerov1.Restore {
	return builder.ForRestore("openshift-adp", "r").ObjectMeta(builder.WithUID(uid)).Result()
}

// The IDs are stored with the backup: a change of their form fails the running operations of an upgrade.
func TestOperationIDs(t *testing.T) {
	t.Parallel()
	require.Equal(t, "dc/v1/u/shop/web", OperationFor(restoreOf("u"), "shop", "web"))
	require.Equal(t, "pods/v1/u", OperationForPods(restoreOf("u")))
}

func TestParseOperation(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		id   string
		want *types.NamespacedName
		ok   bool
	}{
		"a DeploymentConfig":              {id: "dc/v1/u/shop/web", want: &types.NamespacedName{Namespace: "shop", Name: "web"}, ok: true},
		"the pods of the restore":         {id: "pods/v1/u", ok: true},
		"empty":                           {id: ""},
		"another plugin's":                {id: "du-1234-5678"},
		"another restore's":               {id: "dc/v1/v/shop/web"},
		"the pods of another restore":     {id: "pods/v1/v"},
		"a later version of the form":     {id: "dc/v2/u/shop/web"},
		"a kind that is not known":        {id: "rc/v1/u/shop/web"},
		"without a name":                  {id: "dc/v1/u/shop"},
		"with an empty name":              {id: "dc/v1/u/shop/"},
		"with an empty namespace":         {id: "dc/v1/u//web"},
		"with more behind it":             {id: "dc/v1/u/shop/web/x"},
		"the pods with more behind them":  {id: "pods/v1/u/shop"},
		"cut off":                         {id: "dc/v1"},
		"the pods, named like the others": {id: "pods/v1/u/shop/web"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := parseOperation(tc.id, restoreOf("u"))
			if !tc.ok {
				require.ErrorContains(t, err, "operation ID "+tc.id+" is invalid: it is not one of restore openshift-adp/r (uid u)")
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, got.dc)
		})
	}
}

func FuzzOperationReadsBack(f *testing.F) {
	f.Add("u", "shop", "web")
	f.Add("7e0d3c9a-1111-2222-3333-444455556666", "a.b-c", "d.e-f")
	f.Add("", "", "")
	f.Add("u/v", "shop", "web")
	f.Fuzz(func(t *testing.T, uid, namespace, name string) {
		restore := restoreOf(uid)
		id := OperationFor(restore, namespace, name)
		got, err := parseOperation(id, restore)
		if err == nil && (got.dc == nil || got.dc.Namespace != namespace || got.dc.Name != name) {
			t.Errorf("%q is read as %+v", id, got.dc)
		}
		// A slash stands in no UID, namespace or name; an ID with one must be refused rather than misread.
		if err != nil && namespace != "" && name != "" && !hasSlash(uid, namespace, name) {
			t.Errorf("%q is not read: %v", id, err)
		}
	})
}

func hasSlash(parts ...string) bool {
	for _, part := range parts {
		for _, c := range part {
			if c == '/' {
				return true
			}
		}
	}
	return false
}

func FuzzParseOperationNeverPanics(f *testing.F) {
	for _, id := range []string{"", "/", "dc/v1", "dc/v1/u/shop/web", "pods/v1/u", "////"} {
		f.Add(id, "u")
	}
	f.Fuzz(func(t *testing.T, id, uid string) {
		restore := restoreOf(uid)
		got, err := parseOperation(id, restore)
		switch {
		case err != nil:
		case got.dc == nil:
			if id != OperationForPods(restore) {
				t.Errorf("%q is taken for %q", id, OperationForPods(restore))
			}
		case id != OperationFor(restore, got.dc.Namespace, got.dc.Name):
			t.Errorf("%q is read as %+v", id, got.dc)
		}
	})
}
