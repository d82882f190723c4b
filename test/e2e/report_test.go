package e2e

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"text/tabwriter"
	"time"
)

// outcomes are what the scenarios came to, for the table at the end.
var outcomes report

// report is a list of outcomes in the order in which the scenarios ended.
type report struct {
	mu       sync.Mutex
	outcomes []outcome
}

// outcome of a scenario. A duration of 0 was not measured.
type outcome struct {
	scenario string
	passed   bool
	proofs   []proof
	// backup and restore last from the command to the end of the Backup and of the (first) Restore.
	backup, restore time.Duration
	// outage is that of history.Outage, the longest of the scenario's applications.
	outage time.Duration
	// wall is the time from the namespace's creation to the scenario's end.
	wall time.Duration
}

// A proof is that what was written before the backup was read after phase two.
type proof struct {
	application   string
	mebibytes     int
	written, read string // SHA-256
	pods          int    // that have read it
}

func (r *report) add(o outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outcomes = append(r.outcomes, o)
}

// print prints a table of all outcomes, and the proofs.
func (r *report) print(out io.Writer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.outcomes) == 0 {
		return
	}
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprint(table, "\nSCENARIO\tDATA\tBACKUP\tRESTORE\tOUTAGE\tWALL\tRESULT\n")
	for _, o := range r.outcomes {
		mebibytes := 0
		for _, p := range o.proofs {
			mebibytes += p.mebibytes
		}
		result := "passed"
		if !o.passed {
			result = "FAILED"
		}
		fmt.Fprintf(table, "%s\t%d MiB\t%s\t%s\t%s\t%s\t%s\n",
			o.scenario, mebibytes, seconds(o.backup), seconds(o.restore), seconds(o.outage), seconds(o.wall), result)
	}
	_ = table.Flush() // what cannot be printed can be told to nobody
	fmt.Fprint(out, "\nOUTAGE is the time without a ready pod, from the first ready restored pod, or its end, to all of the application's own.\n"+
		"\nSHA-256 of what was written before the backup and read after phase two:\n")
	for _, o := range r.outcomes {
		for _, p := range o.proofs {
			fmt.Fprintf(out, "\n%s, %s, %d MiB\n  written  %s\n  read     %s  (pods: %d)\n", o.scenario, p.application, p.mebibytes, p.written, p.read, p.pods)
		}
	}
	fmt.Fprintln(out)
}

func seconds(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// prove puts a proof in the place of an earlier one for the same application.
func (o *outcome) prove(p proof) {
	o.proofs = append(slices.DeleteFunc(o.proofs, func(before proof) bool { return before.application == p.application }), p)
}
