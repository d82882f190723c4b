package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"
)

// none stands in a cell that is empty, so that columns can be cut by white space.
const none = "-"

// column is one of a table over rows of a type.
type column[R any] struct {
	name string
	cell func(R) string
	// wide columns are for -o wide. A sparse one is left out where it would be empty in every row.
	wide, sparse bool
}

// tableOf returns the table that a person reads.
func tableOf[R any](rows []R, columns []column[R]) *metav1.Table {
	columns = slices.DeleteFunc(slices.Clone(columns), func(c column[R]) bool {
		return c.sparse && !slices.ContainsFunc(rows, func(row R) bool { return c.cell(row) != "" })
	})
	table := &metav1.Table{}
	for _, column := range columns {
		definition := metav1.TableColumnDefinition{Name: column.name, Type: "string"}
		if column.wide {
			definition.Priority = 1
		}
		table.ColumnDefinitions = append(table.ColumnDefinitions, definition)
	}
	for _, row := range rows {
		cells := metav1.TableRow{}
		for _, column := range columns {
			cell := column.cell(row)
			if cell == "" {
				cell = none
			}
			cells.Cells = append(cells.Cells, cell)
		}
		table.Rows = append(table.Rows, cells)
	}
	return table
}

// printTable writes a table. One without rows is not written: its headings say nothing.
func printTable(out io.Writer, table *metav1.Table, wide bool) error {
	if len(table.Rows) == 0 {
		return nil
	}
	// The printer does not tell what its writer could not write.
	var b strings.Builder
	if err := printers.NewTablePrinter(printers.PrintOptions{Wide: wide}).PrintObj(table, &b); err != nil {
		return failed(fmt.Errorf("print the table: %w", err))
	}
	if _, err := io.WriteString(out, b.String()); err != nil {
		return failed(fmt.Errorf("write the table: %w", err))
	}
	return nil
}

// oneLine puts a text that an API server, a container or a person has written on one line.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// table returns the rows that a person reads.
func (o Output) table() *metav1.Table {
	return tableOf(o.Results, []column[OutputResult]{
		{name: "Namespace", cell: func(r OutputResult) string { return r.Namespace }},
		{name: "DeploymentConfig", cell: func(r OutputResult) string { return r.Name }},
		{name: "Result", cell: func(r OutputResult) string { return string(r.Result) }},
		{name: "Step", sparse: true, cell: func(r OutputResult) string { return string(r.Step) }},
		{name: "Pods", sparse: true, cell: func(r OutputResult) string {
			if r.Pods == nil {
				return ""
			}
			return fmt.Sprintf("%d/%d", r.Pods.Initialized, r.Pods.Total)
		}},
		{name: "Lost Volumes", sparse: true, cell: func(r OutputResult) string { return strings.Join(r.LostVolumes, ",") }},
		{name: "Message", cell: func(r OutputResult) string { return oneLine(r.Message) }},
	})
}

// print writes the output in a format.
func (o Output) print(out io.Writer, format string) error {
	if format != formatTable {
		return encode(out, format, o)
	}
	return printTable(out, o.table(), false)
}
