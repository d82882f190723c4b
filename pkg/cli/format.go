package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// Output formats.
const (
	formatText  = "text"
	formatTable = "table"
	formatWide  = "wide"
	formatJSON  = "json"
	formatYAML  = "yaml"
)

// format is the flag -o: one of a few words. A wrong one is an error of the command line.
type format struct {
	value   *string
	allowed []string
}

var _ pflag.Value = format{}

// newFormat returns a flag whose default is the first of the allowed words.
func newFormat(allowed ...string) format {
	value := allowed[0]
	return format{value: &value, allowed: allowed}
}

// String implements pflag.Value. pflag also calls it on a zero value, to tell whether the default is one.
func (f format) String() string {
	if f.value == nil {
		return ""
	}
	return *f.value
}

// Set implements pflag.Value.
func (f format) Set(word string) error {
	if !slices.Contains(f.allowed, word) {
		return fmt.Errorf("it is one of %s", f.choices())
	}
	*f.value = word
	return nil
}

// Type implements pflag.Value.
func (f format) Type() string { return "format" }

func (f format) choices() string { return strings.Join(f.allowed, ", ") }

// encode writes a value as JSON or YAML. Both follow its json tags.
func encode(out io.Writer, format string, value any) error {
	var data []byte
	var err error
	if format == formatYAML {
		data, err = yaml.Marshal(value)
	} else {
		data, err = json.MarshalIndent(value, "", "  ")
		data = append(data, '\n')
	}
	if err != nil {
		return failed(fmt.Errorf("encode as %s: %w", format, err))
	}
	if _, err := out.Write(data); err != nil {
		return failed(fmt.Errorf("write %s: %w", format, err))
	}
	return nil
}
