package cli

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestWrap(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		line  string
		width int
		want  []string
	}{
		"short":                            {"a line", 10, []string{"a line"}},
		"empty":                            {"", 10, []string{""}},
		"one less than the width":          {"123456789", 10, []string{"123456789"}},
		"as long as the width":             {"1234567890", 10, []string{"123456789", "  0"}},
		"between words":                    {"one two three four", 10, []string{"one two", "  three", "  four"}},
		"within a word that is too long":   {"one elephantine", 8, []string{"one", "  eleph", "  antin", "  e"}},
		"characters of more than a byte":   {"äöü äöü äöü", 8, []string{"äöü", "  äöü", "  äöü"}},
		"a terminal that is no use at all": {"abc", 1, []string{"abc"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tc.want, wrap([]string{tc.line}, tc.width))
		})
	}
}
