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

// table returns the rows that a person reads. Columns that would be empty in every row are left out.
func (o Output) table() *metav1.Table {
	has := func(test func(OutputResult) bool) bool { return slices.ContainsFunc(o.Results, test) }
	columns := []struct {
		name string
		show bool
		cell func(OutputResult) string
	}{
		{"Namespace", true, func(r OutputResult) string { return r.Namespace }},
		{"DeploymentConfig", true, func(r OutputResult) string { return r.Name }},
		{"Result", true, func(r OutputResult) string { return string(r.Result) }},
		{"Step", has(func(r OutputResult) bool { return r.Step != "" }), func(r OutputResult) string { return string(r.Step) }},
		{"Pods", has(func(r OutputResult) bool { return r.Pods != nil }), func(r OutputResult) string {
			if r.Pods == nil {
				return ""
			}
			return fmt.Sprintf("%d/%d", r.Pods.Initialized, r.Pods.Total)
		}},
		{"Lost Volumes", has(func(r OutputResult) bool { return len(r.LostVolumes) > 0 }), func(r OutputResult) string {
			return strings.Join(r.LostVolumes, ",")
		}},
		{"Message", true, func(r OutputResult) string { return oneLine(r.Message) }},
	}
	table := &metav1.Table{}
	for _, column := range columns {
		if column.show {
			table.ColumnDefinitions = append(table.ColumnDefinitions, metav1.TableColumnDefinition{Name: column.name, Type: "string"})
		}
	}
	for _, result := range o.Results {
		row := metav1.TableRow{}
		for _, column := range columns {
			if !column.show {
				continue
			}
			cell := column.cell(result)
			if cell == "" {
				cell = none
			}
			row.Cells = append(row.Cells, cell)
		}
		table.Rows = append(table.Rows, row)
	}
	return table
}

// oneLine puts a text that an API server, a container or a person has written on one line.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// print writes the output in a format. A table without rows is not written: its headings say nothing.
func (o Output) print(out io.Writer, format string) error {
	if format != formatTable {
		return encode(out, format, o)
	}
	if len(o.Results) == 0 {
		return nil
	}
	if err := printers.NewTablePrinter(printers.PrintOptions{}).PrintObj(o.table(), out); err != nil {
		return failed(fmt.Errorf("write the table: %w", err))
	}
	return nil
}
