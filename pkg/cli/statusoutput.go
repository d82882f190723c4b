package cli

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/postrestore"
)

// Status is what `status -o json` and `-o yaml` print. Scripts rely on it: fields are added, never renamed.
type Status struct {
	// Items are in the order of namespaces and names. Empty means that nothing is held.
	Items []StatusItem `json:"items"`
}

// StatusItem is about one DeploymentConfig: it is held, pods are detached from it, or both.
type StatusItem struct {
	Namespace string `json:"namespace"`
	// Name of the DeploymentConfig; empty for pods that do not tell.
	Name string `json:"name"`
	// Exists: the cluster has such a DeploymentConfig. Held: it is held at 0 replicas.
	Exists bool `json:"exists"`
	Held   bool `json:"held"`
	// Restore is the one that holds it, or that has detached its pods. None where no mark names one.
	Restore *StatusRestore `json:"restore,omitempty"`
	// Since is when it was held, or its first pod detached; SinceFrom is the field that says so.
	Since     time.Time               `json:"since"`
	SinceFrom postrestore.SinceSource `json:"sinceFrom"`
	// Originals are what it is to be given back. None where they are not recorded.
	Originals *StatusOriginals `json:"originals,omitempty"`
	// Pods are its detached pods.
	Pods []StatusPod `json:"pods,omitempty"`
	// Step is the next one of phase two, Message what it waits for.
	Step    postrestore.Action `json:"step"`
	Message string             `json:"message"`
	// Problems are what does not fit together.
	Problems []StatusProblem `json:"problems,omitempty"`
	// Command is what helps, for a shell.
	Command string `json:"command,omitempty"`
}

// StatusRestore is a Restore that holds something.
type StatusRestore struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Exists is false when the Restore is gone. Phase is that of one that exists.
	Exists bool   `json:"exists"`
	Phase  string `json:"phase,omitempty"`
}

// StatusOriginals are the recorded values of a held DeploymentConfig.
type StatusOriginals struct {
	Replicas int32 `json:"replicas"`
	Paused   bool  `json:"paused"`
}

// StatusPod is a detached pod.
type StatusPod struct {
	Name string `json:"name"`
	// Initialized: its init containers have ended well, so that its data is in.
	Initialized bool `json:"initialized"`
	// Since is when it was restored.
	Since time.Time `json:"since"`
}

// StatusProblem is something that does not fit together: a word for scripts and a sentence.
type StatusProblem struct {
	Problem postrestore.Inconsistency `json:"problem"`
	Message string                    `json:"message"`
}

// statusOf turns what was found into what is printed.
func statusOf(holdings []postrestore.Holding) Status {
	status := Status{Items: []StatusItem{}}
	for _, h := range holdings {
		item := StatusItem{
			Namespace: h.Name.Namespace, Name: h.Name.Name, Exists: h.Exists, Held: h.Held,
			Since: h.Since.UTC(), SinceFrom: h.SinceFrom, Step: h.Step.Action, Message: h.Sentence(), Command: h.Command,
		}
		if h.Restore.Name != "" {
			item.Restore = &StatusRestore{Namespace: h.Restore.Namespace, Name: h.Restore.Name, Exists: h.Restore.Exists, Phase: string(h.Restore.Phase)}
		}
		if h.Originals != nil {
			item.Originals = &StatusOriginals{Replicas: h.Originals.Replicas, Paused: h.Originals.Paused}
		}
		for _, pod := range h.Pods {
			item.Pods = append(item.Pods, StatusPod{Name: pod.Name, Initialized: pod.Initialized(), Since: pod.CreationTimestamp.UTC()})
		}
		for _, problem := range h.Problems {
			item.Problems = append(item.Problems, StatusProblem{Problem: problem.Kind, Message: problem.Message})
		}
		status.Items = append(status.Items, item)
	}
	return status
}

// goneRestore stands for the phase of a Restore that does not exist.
const goneRestore = "gone"

// table returns the rows that a person reads, at a time.
func (s Status) table(now time.Time) *metav1.Table {
	return tableOf(s.Items, slices.Concat(shortColumns(now), []column[StatusItem]{
		{name: "Problems", sparse: true, cell: func(i StatusItem) string {
			words := make([]string, 0, len(i.Problems))
			for _, problem := range i.Problems {
				words = append(words, string(problem.Problem))
			}
			return strings.Join(words, ",")
		}},
		{name: "Message", cell: func(i StatusItem) string { return oneLine(i.Message) }},
		{name: "Since", wide: true, cell: func(i StatusItem) string { return i.Since.Format(time.RFC3339) }},
		{name: "Paused", wide: true, cell: func(i StatusItem) string {
			if i.Originals == nil {
				return ""
			}
			return strconv.FormatBool(i.Originals.Paused)
		}},
		{name: "Pod Names", wide: true, cell: func(i StatusItem) string {
			names := make([]string, 0, len(i.Pods))
			for _, pod := range i.Pods {
				names = append(names, pod.Name)
			}
			return strings.Join(names, ",")
		}},
		{name: "Velero", wide: true, cell: func(i StatusItem) string {
			if i.Restore == nil {
				return ""
			}
			return i.Restore.Namespace
		}},
		{name: "Command", wide: true, cell: func(i StatusItem) string { return i.Command }},
	}))
}

// shortColumns are those without sentences, at a time.
func shortColumns(now time.Time) []column[StatusItem] {
	return []column[StatusItem]{
		{name: "Namespace", cell: func(i StatusItem) string { return i.Namespace }},
		{name: "DeploymentConfig", cell: func(i StatusItem) string { return i.Name }},
		{name: "Restore", cell: func(i StatusItem) string {
			if i.Restore == nil {
				return ""
			}
			return i.Restore.Name
		}},
		{name: "Phase", cell: StatusItem.phase},
		{name: "Age", cell: func(i StatusItem) string { return duration.HumanDuration(now.Sub(i.Since)) }},
		{name: "Replicas", cell: func(i StatusItem) string {
			if i.Originals == nil {
				return ""
			}
			return strconv.Itoa(int(i.Originals.Replicas))
		}},
		{name: "Pods", cell: StatusItem.pods},
	}
}

func (i StatusItem) key() string { return i.Namespace + "/" + i.Name }

func (i StatusItem) phase() string {
	switch {
	case i.Restore == nil:
		return ""
	case !i.Restore.Exists:
		return goneRestore
	default:
		return i.Restore.Phase
	}
}

// pods returns how many of its detached pods are initialised.
func (i StatusItem) pods() string {
	if len(i.Pods) == 0 {
		return ""
	}
	initialized := 0
	for _, pod := range i.Pods {
		if pod.Initialized {
			initialized++
		}
	}
	return fmt.Sprintf("%d/%d", initialized, len(i.Pods))
}

// advice returns the lines below the table: what does not fit together, and what to run. Everything for which the same
// command helps is named at once.
func (s Status) advice() []string {
	var lines, commands []string
	about := map[string][]string{}
	for _, item := range s.Items {
		name := item.key()
		for _, problem := range item.Problems {
			lines = append(lines, fmt.Sprintf("%s: %s", name, oneLine(problem.Message)))
		}
		if item.Command == "" {
			continue
		}
		if !slices.Contains(commands, item.Command) {
			commands = append(commands, item.Command)
		}
		about[item.Command] = append(about[item.Command], name)
	}
	for _, command := range commands {
		lines = append(lines, fmt.Sprintf("%s: run %s", strings.Join(about[command], ", "), command))
	}
	return lines
}

// print writes the status in a format.
func (s Status) print(out io.Writer, format string, now time.Time) error {
	switch format {
	case formatTable, formatWide:
		return printTable(out, s.table(now), format == formatWide)
	default:
		return encode(out, format, s)
	}
}
