package bed

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	auditLog = "audit.log"
	// auditLogMaxSize is in MiB. At about 1 KiB a request no bed fills it, so the log is one file.
	auditLogMaxSize = "4096"
)

// AuditEvent is one request that the API server has answered, or, for a watch that goes on, begun to answer.
type AuditEvent struct {
	Time        time.Time // when the request arrived
	UserAgent   string
	User        string // the authenticated user, or whom it impersonates
	Verb        string // get, list, watch, create, update, patch, delete, deletecollection
	APIGroup    string
	Resource    string // empty for a request that is not for a resource, as /apis or /version
	Subresource string
	Namespace   string
	Name        string
	URI         string
	Code        int // HTTP status
}

// auditRecord is what is read here of an Event of audit.k8s.io/v1.
type auditRecord struct {
	AuditID          string
	Verb             string
	RequestURI       string
	UserAgent        string
	User             struct{ Username string }
	ImpersonatedUser *struct{ Username string }
	ObjectRef        struct{ APIGroup, Resource, Subresource, Namespace, Name string }
	ResponseStatus   struct{ Code int }

	RequestReceivedTimestamp metav1.MicroTime
}

// AuditEvents are the requests that arrived at or after since, in the order in which they were answered. A request is logged
// right after its answer was written: the very last one may be missing for a moment.
func (b *Bed) AuditEvents(since time.Time) ([]AuditEvent, error) {
	file, err := os.Open(b.path(auditLog))
	if err != nil {
		return nil, fmt.Errorf("read the audit log: %w", err)
	}
	defer file.Close()

	since = since.Truncate(time.Microsecond) // the log's resolution
	var events []AuditEvent
	seen := map[string]bool{} // a watch is logged twice
	for lines := bufio.NewReader(file); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) { // what is left is a line that is being written
			return events, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the audit log: %w", err)
		}
		var record auditRecord
		if err := json.Unmarshal(line, &record); err != nil {
			return nil, fmt.Errorf("decode a line of the audit log: %w", err)
		}
		if record.RequestReceivedTimestamp.Time.Before(since) || seen[record.AuditID] {
			continue
		}
		seen[record.AuditID] = true
		user := record.User.Username
		if record.ImpersonatedUser != nil {
			user = record.ImpersonatedUser.Username
		}
		events = append(events, AuditEvent{
			Time:        record.RequestReceivedTimestamp.Time,
			UserAgent:   record.UserAgent,
			User:        user,
			Verb:        record.Verb,
			APIGroup:    record.ObjectRef.APIGroup,
			Resource:    record.ObjectRef.Resource,
			Subresource: record.ObjectRef.Subresource,
			Namespace:   record.ObjectRef.Namespace,
			Name:        record.ObjectRef.Name,
			URI:         record.RequestURI,
			Code:        record.ResponseStatus.Code,
		})
	}
}
