package recipe

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/contract"
)

// Outcome of a look for the Recipe of a VRG at backup. It stands in backups: never give a word another meaning.
type Outcome string

// The outcomes. Only with OutcomeBundled are the Recipe and its CRD in the backup because of us.
const (
	// OutcomeNone: the VRG refers to no Recipe. It is not recorded.
	OutcomeNone Outcome = "none"
	// OutcomeBuiltIn: the Recipe is part of Ramen, there is no object of it.
	OutcomeBuiltIn Outcome = "builtin"
	// OutcomeBundled: the Recipe and its CRD are in the backup.
	OutcomeBundled Outcome = "bundled"
	// OutcomeCRDAbsent: the cluster has no CRD of Recipes.
	OutcomeCRDAbsent Outcome = "crd-absent"
	// OutcomeCRDNotReady: there is a CRD, which does not serve Recipes.
	OutcomeCRDNotReady Outcome = "crd-not-ready"
	// OutcomeDangling: there is no Recipe of that name, or the reference names none.
	OutcomeDangling Outcome = "dangling"
	// OutcomeForbidden: the plugin may not read the Recipe or its CRD.
	OutcomeForbidden Outcome = "forbidden"
	// OutcomeTerminating: the Recipe or its CRD is being deleted.
	OutcomeTerminating Outcome = "terminating"
	// OutcomeExcluded: the Recipe or its CRD carries the label that keeps it out of backups.
	OutcomeExcluded Outcome = "excluded"
	// OutcomeDenied: the VRG may not bring a Recipe of that namespace into this backup.
	OutcomeDenied Outcome = "denied"
	// OutcomeMalformed: the reference has a shape that no version of Ramen knows.
	OutcomeMalformed Outcome = "malformed"
	// OutcomeError: the API server could not be asked.
	OutcomeError Outcome = "error"
)

var outcomes = []Outcome{
	OutcomeNone, OutcomeBuiltIn, OutcomeBundled, OutcomeCRDAbsent, OutcomeCRDNotReady, OutcomeDangling, OutcomeForbidden,
	OutcomeTerminating, OutcomeExcluded, OutcomeDenied, OutcomeMalformed, OutcomeError,
}

// RecordVersion is the version of the Record that this binary writes, and the highest that it reads.
const RecordVersion = 1

// MaxRecordBytes is how long an encoded Record can be. A real one has about 700 bytes; all annotations of an object together
// have 256 KiB.
const MaxRecordBytes = 16 << 10

// Record is what a backup says of a VRG's Recipe, in the annotation contract.RecipeBundleAnnotation of the archived VRG. It is
// a hint: whoever can write the VRG can write the annotation of a VRG that was backed up without this plugin.
type Record struct {
	// Version of the record, RecordVersion.
	Version int `json:"version"`
	// Outcome of the look for the Recipe.
	Outcome Outcome `json:"outcome"`
	// Recipe that the VRG refers to; its namespace and name are there for every outcome but OutcomeMalformed.
	Recipe Identity `json:"recipe"`
	// CRD of Recipes, nil when it was not read.
	CRD *CRDRecord `json:"crd,omitempty"`
	// VRG at the time of the backup. Its status and generation do not survive a restore.
	VRG VRGRecord `json:"vrg"`
	// Cluster is the UID of the namespace kube-system where the backup was made, empty when it could not be read.
	Cluster types.UID `json:"cluster,omitempty"`
	// Backup is the name of the backup.
	Backup string `json:"backup,omitempty"`
}

// Identity is what a Record says of a Recipe. All but namespace and name are empty when the Recipe was not read.
type Identity struct {
	Namespace       string    `json:"namespace,omitempty"`
	Name            string    `json:"name,omitempty"`
	UID             types.UID `json:"uid,omitempty"`
	Generation      int64     `json:"generation,omitempty"`
	ResourceVersion string    `json:"resourceVersion,omitempty"`
	// SHA256 of its spec, see SHA256.
	SHA256 string `json:"sha256,omitempty"`
}

// maxServed bounds the versions that a CRDRecord names.
const maxServed = 16

// CRDRecord is what a Record says of the CRD of Recipes.
type CRDRecord struct {
	// Served versions, sorted; the first 16.
	Served []string `json:"served"`
	// SHA256 of its spec, see SHA256.
	SHA256 string `json:"sha256"`
}

// VRGRecord is what a Record says of its VRG.
type VRGRecord struct {
	Generation int64 `json:"generation,omitempty"`
	// Capture that Ramen would recover from, nil when there is none yet.
	Capture *Capture `json:"capture,omitempty"`
	// AsCaptured tells whether the VRG, and with it its recipeParameters, are those of that capture: their generations are
	// the same. nil without a capture, or when Ramen has not recorded the generation.
	AsCaptured *bool `json:"asCaptured,omitempty"`
}

// Capture is status.kubeObjectProtection.captureToRecoverFrom of a VRG (Ramen api/v1alpha1/volumereplicationgroup_types.go).
type Capture struct {
	// Number is 0 or 1: Ramen keeps two captures and overwrites the older one.
	Number int64 `json:"number"`
	// StartGeneration is the generation of the VRG when the capture began, 0 when Ramen has not recorded it.
	StartGeneration int64 `json:"startGeneration,omitempty"`
	// StartTime and EndTime in RFC 3339, as Ramen wrote them.
	StartTime string `json:"startTime,omitempty"`
	EndTime   string `json:"endTime,omitempty"`
}

// VRGRecordOf returns what a Record says of a VRG as it is in the cluster. Fields of a wrong shape count as absent.
func VRGRecordOf(vrg *unstructured.Unstructured) VRGRecord {
	record := VRGRecord{Generation: vrg.GetGeneration()}
	status, ok, err := mapAt(vrg.Object, "status", "kubeObjectProtection", "captureToRecoverFrom")
	if err != nil || !ok {
		return record
	}
	capture := &Capture{}
	capture.Number = intOf(status["number"])
	capture.StartGeneration = intOf(status["startGeneration"])
	capture.StartTime, capture.EndTime = timeOf(status["startTime"]), timeOf(status["endTime"])
	record.Capture = capture
	if capture.StartGeneration != 0 && record.Generation != 0 {
		record.AsCaptured = new(capture.StartGeneration == record.Generation)
	}
	return record
}

// timeOf returns a time as it stands in the object, empty for what cannot be one.
func timeOf(value any) string {
	text, _ := value.(string)
	if len(text) > 64 {
		return ""
	}
	return text
}

// Key of the Recipe.
func (r Record) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: r.Recipe.Namespace, Name: r.Recipe.Name}
}

// ErrNewerRecord says that a record was written by a newer version of the plugin.
var ErrNewerRecord = errors.New("it was written by a newer version of this plugin: update the plugin")

// Encode returns the record as one line of JSON. The same record always gives the same line.
func (r Record) Encode() (string, error) {
	if err := r.check(); err != nil {
		return "", fmt.Errorf("encode %s: %w", contract.RecipeBundleAnnotation, err)
	}
	data, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("encode %s: %w", contract.RecipeBundleAnnotation, err)
	}
	if len(data) > MaxRecordBytes {
		return "", fmt.Errorf("encode %s: it has %d bytes, and may have %d", contract.RecipeBundleAnnotation, len(data), MaxRecordBytes)
	}
	return string(data), nil
}

// Decode reads an encoded record. Fields that it does not know are passed over. The error is ErrNewerRecord for a version
// that it does not know; otherwise it says what is wrong with the text.
func Decode(text string) (Record, error) {
	fail := func(err error) (Record, error) {
		return Record{}, fmt.Errorf("read annotation %s: %w", contract.RecipeBundleAnnotation, err)
	}
	if len(text) > MaxRecordBytes {
		return fail(fmt.Errorf("it has %d bytes, and may have %d", len(text), MaxRecordBytes))
	}
	// The version first: a newer record may have fields of other types.
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal([]byte(text), &head); err != nil {
		return fail(err)
	}
	if head.Version > RecordVersion {
		return fail(ErrNewerRecord)
	}
	var record Record
	if err := json.Unmarshal([]byte(text), &record); err != nil {
		return fail(err)
	}
	if err := record.check(); err != nil {
		return fail(err)
	}
	return record, nil
}

// RecordOf returns the record that a VRG of a backup carries. ok is false when it has none.
func RecordOf(vrg *unstructured.Unstructured) (record Record, ok bool, err error) {
	text, ok := vrg.GetAnnotations()[contract.RecipeBundleAnnotation]
	if !ok {
		return Record{}, false, nil
	}
	if record, err = Decode(text); err != nil {
		return Record{}, false, err
	}
	return record, true, nil
}

// check holds a record to what every reader may rely on.
func (r Record) check() error {
	switch {
	case r.Version != RecordVersion:
		return fmt.Errorf("its version is %d, not %d", r.Version, RecordVersion)
	case !slices.Contains(outcomes, r.Outcome):
		return fmt.Errorf("its outcome is %q", r.Outcome)
	case r.Outcome == OutcomeBundled && (r.Recipe.Namespace == "" || r.Recipe.Name == "" || r.Recipe.SHA256 == "" || r.CRD == nil):
		return errors.New("its outcome is bundled, and it names no Recipe or no CRD")
	default:
		return nil
	}
}
