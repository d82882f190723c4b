package recipe_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/recipe"
	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/testkit"
)

// whole is a record with everything in it, and wholeText what backups hold of it.
func whole() recipe.Record {
	return recipe.Record{
		Version: 1, Outcome: recipe.OutcomeBundled,
		Recipe:  recipe.Identity{Namespace: "app", Name: "r", UID: "u", Generation: 7, ResourceVersion: "42", SHA256: "abc"},
		CRD:     &recipe.CRDRecord{Served: []string{"v1", "v1alpha1"}, SHA256: "def"},
		VRG:     recipe.VRGRecord{Generation: 4, Capture: &recipe.Capture{Number: 1, StartGeneration: 3, StartTime: "s", EndTime: "e"}, AsCaptured: new(false)},
		Cluster: "c", Backup: "b",
	}
}

const wholeText = `{"version":1,"outcome":"bundled",` +
	`"recipe":{"namespace":"app","name":"r","uid":"u","generation":7,"resourceVersion":"42","sha256":"abc"},` +
	`"crd":{"served":["v1","v1alpha1"],"sha256":"def"},` +
	`"vrg":{"generation":4,"capture":{"number":1,"startGeneration":3,"startTime":"s","endTime":"e"},"asCaptured":false},` +
	`"cluster":"c","backup":"b"}`

// The text stands in backups: what is written today is read by every later version.
func TestRecordAsItStandsInBackups(t *testing.T) {
	t.Parallel()
	for text, record := range map[string]recipe.Record{
		wholeText: whole(),
		`{"version":1,"outcome":"dangling","recipe":{"namespace":"app","name":"r"},"vrg":{}}`: {Version: 1, Outcome: recipe.OutcomeDangling, Recipe: recipe.Identity{Namespace: "app", Name: "r"}},
		`{"version":1,"outcome":"malformed","recipe":{},"vrg":{"capture":{"number":0}}}`:      {Version: 1, Outcome: recipe.OutcomeMalformed, VRG: recipe.VRGRecord{Capture: &recipe.Capture{}}},
	} {
		got, err := record.Encode()
		require.NoError(t, err)
		require.Equal(t, text, got)
		decoded, err := recipe.Decode(text)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(record, decoded))
	}
	require.Equal(t, key("app", "r"), whole().Key())
}

func TestDecode(t *testing.T) {
	t.Parallel()
	got, err := recipe.Decode(strings.Replace(wholeText, `"version":1`, `"version":1,"later":{"x":[]}`, 1))
	require.NoError(t, err, "fields that a later version adds are passed over")
	require.Empty(t, cmp.Diff(whole(), got))

	for name, tc := range map[string]struct{ text, fails string }{
		"empty":                        {"", "unexpected end of JSON input"},
		"no JSON":                      {"bundled", "invalid character"},
		"JSON and more":                {wholeText + "{}", "invalid character '{' after top-level value"},
		"null":                         {"null", "its version is 0, not 1"},
		"a list":                       {"[]", "cannot unmarshal array"},
		"no version":                   {`{"outcome":"dangling"}`, "its version is 0, not 1"},
		"a negative version":           {`{"version":-1,"outcome":"dangling"}`, "its version is -1, not 1"},
		"a newer version":              {`{"version":2,"outcome":7}`, recipe.ErrNewerRecord.Error()},
		"a version that is a word":     {`{"version":"1"}`, "cannot unmarshal string"},
		"an outcome of another type":   {`{"version":1,"outcome":7}`, "cannot unmarshal number"},
		"an outcome nobody knows":      {`{"version":1,"outcome":"lost"}`, `its outcome is "lost"`},
		"no outcome":                   {`{"version":1}`, `its outcome is ""`},
		"bundled without a Recipe":     {`{"version":1,"outcome":"bundled","crd":{"served":[],"sha256":"x"}}`, "names no Recipe or no CRD"},
		"bundled without a CRD":        {`{"version":1,"outcome":"bundled","recipe":{"namespace":"a","name":"r","sha256":"x"}}`, "names no Recipe or no CRD"},
		"bundled, the Recipe not read": {`{"version":1,"outcome":"bundled","recipe":{"namespace":"a","name":"r"},"crd":{}}`, "names no Recipe or no CRD"},
		"longer than an annotation":    {wholeText + strings.Repeat(" ", recipe.MaxRecordBytes), "may have 16384"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := recipe.Decode(tc.text)
			require.ErrorContains(t, err, "read annotation oadp.openshift.io/recipe-bundle: ")
			require.ErrorContains(t, err, tc.fails)
			require.Equal(t, recipe.Record{}, got)
		})
	}
	_, err = recipe.Decode(`{"version":2}`)
	require.ErrorIs(t, err, recipe.ErrNewerRecord)
}

func TestEncodeRefusesWhatNobodyCouldRead(t *testing.T) {
	t.Parallel()
	record := whole()
	record.Version = 2
	_, err := record.Encode()
	require.EqualError(t, err, "encode oadp.openshift.io/recipe-bundle: its version is 2, not 1")
	record = whole()
	record.VRG.Capture.EndTime = strings.Repeat("x", recipe.MaxRecordBytes)
	_, err = record.Encode()
	require.ErrorContains(t, err, "bytes, and may have 16384")
}

func TestRecordOf(t *testing.T) {
	t.Parallel()
	vrg := testkit.MakeVRG("ramen-ops", "v")
	_, ok, err := recipe.RecordOf(vrg.Obj())
	require.NoError(t, err)
	require.False(t, ok)
	got, ok, err := recipe.RecordOf(vrg.Annotation(contract.RecipeBundleAnnotation, wholeText).Obj())
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, whole(), got)
	_, ok, err = recipe.RecordOf(vrg.Annotation(contract.RecipeBundleAnnotation, "x").Obj())
	require.ErrorContains(t, err, contract.RecipeBundleAnnotation)
	require.False(t, ok)
}

func TestVRGRecordOf(t *testing.T) {
	t.Parallel()
	vrg := func() *testkit.Ramen { return testkit.MakeVRG("ramen-ops", "v").Generation(4) }
	capture := func(start int64) *recipe.Capture {
		return &recipe.Capture{Number: 1, StartGeneration: start, StartTime: "2026-03-01T11:50:00Z", EndTime: "2026-03-01T11:51:00Z"}
	}
	status := []string{"status", "kubeObjectProtection", "captureToRecoverFrom"}
	for name, tc := range map[string]struct {
		vrg  *testkit.Ramen
		want recipe.VRGRecord
	}{
		"no capture yet":                         {vrg(), recipe.VRGRecord{Generation: 4}},
		"captured as it is":                      {vrg().Captured(1, 4), recipe.VRGRecord{Generation: 4, Capture: capture(4), AsCaptured: new(true)}},
		"changed since":                          {vrg().Captured(1, 3), recipe.VRGRecord{Generation: 4, Capture: capture(3), AsCaptured: new(false)}},
		"a capture without its generation":       {vrg().Captured(1, 0), recipe.VRGRecord{Generation: 4, Capture: capture(0)}},
		"numbers read as floats":                 {vrg().Captured(1, 0).Field(float64(4), append(status, "startGeneration")...), recipe.VRGRecord{Generation: 4, Capture: capture(4), AsCaptured: new(true)}},
		"a fraction is no generation":            {vrg().Captured(1, 0).Field(4.5, append(status, "startGeneration")...), recipe.VRGRecord{Generation: 4, Capture: capture(0)}},
		"an empty capture":                       {vrg().Field(map[string]any{}, status...), recipe.VRGRecord{Generation: 4, Capture: &recipe.Capture{}}},
		"fields of other types":                  {vrg().Field(map[string]any{"number": "1", "startTime": int64(1)}, status...), recipe.VRGRecord{Generation: 4, Capture: &recipe.Capture{}}},
		"a time longer than a time":              {vrg().Field(map[string]any{"endTime": strings.Repeat("x", 65)}, status...), recipe.VRGRecord{Generation: 4, Capture: &recipe.Capture{}}},
		"a status of another shape":              {vrg().Field("x", "status"), recipe.VRGRecord{Generation: 4}},
		"a capture, and no generation of itself": {vrg().Generation(0).Captured(1, 3), recipe.VRGRecord{Capture: capture(3)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Empty(t, cmp.Diff(tc.want, recipe.VRGRecordOf(tc.vrg.Obj())))
		})
	}
}

// Whatever stands in the annotation, reading it gives a record or an error, and a record that was read can be written.
func FuzzDecode(f *testing.F) {
	f.Add(wholeText)
	f.Add(`{"version":1,"outcome":"none","crd":{},"vrg":{"asCaptured":true}}`)
	f.Add(`{"version":1e0,"outcome":"error","recipe":{"name":"\u0000<>\ud800"}}`)
	f.Add(`{"version":2}`)
	f.Add("null")
	f.Fuzz(func(t *testing.T, text string) {
		record, err := recipe.Decode(text)
		if err != nil {
			return
		}
		first, err := record.Encode()
		if err != nil {
			if strings.Contains(err.Error(), fmt.Sprintf("may have %d", recipe.MaxRecordBytes)) {
				t.Skip("escapes can make it longer than it was")
			}
			t.Fatalf("cannot write what was read of %q: %v", text, err)
		}
		again, err := recipe.Decode(first)
		if err != nil {
			t.Fatalf("cannot read %q: %v", first, err)
		}
		if diff := cmp.Diff(record, again); diff != "" {
			t.Errorf("%q is read as another record:\n%s", first, diff)
		}
	})
}
