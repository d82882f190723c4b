package cli

import (
	"strings"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/postrestore"
)

const (
	// noColour in the environment, not empty, asks for no colours (no-color.org).
	noColour = "NO_COLOR"
	// The colours of a bar: of one that is done, of one that failed, and the end of it.
	doneColour   = "\x1b[32m"
	failedColour = "\x1b[31m"
	plainColour  = "\x1b[0m"
	// cells is the length of each of the three parts of a bar.
	cells = 6
	// roomForSentence is what must be left of a line beside the name and the bar, time and blanks included, or there is no bar.
	roomForSentence = 40
)

// bar draws how far phase two of a DeploymentConfig is, in three parts that fill from left to right: detached pods
// initialised, detached pods deleted, replicas back. pods is how many detached pods there were at most.
func bar(result postrestore.Result, pods int) string {
	step := result.Step
	initialised := part(pods-(step.Total-step.Initialized), pods)
	deleted := part(pods-step.Total, pods)
	back := part(result.Back, result.Wanted)
	if result.Ended() && !result.Failed() {
		initialised, deleted, back = part(0, 0), part(0, 0), part(0, 0)
	} else if result.Wanted == 0 {
		back = part(0, 1)
	}
	return "[" + initialised + "|" + deleted + "|" + back + "]"
}

// part is a part of a bar with n of all done. It is full only when all are; none of none is full.
func part(n, all int) string {
	filled := cells
	if all > 0 {
		filled = min(max(n, 0), all) * cells / all
	}
	return strings.Repeat("#", filled) + strings.Repeat("-", cells-filled)
}

func colourOf(result postrestore.Result) string {
	switch {
	case result.Failed():
		return failedColour
	case result.Ended():
		return doneColour
	default:
		return ""
	}
}
