package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// speaking are the packages of DeploymentConfigs that say something to a person: in an operation, an event, a table, a log
// line or an error.
var speaking = []string{
	"pkg/cli", "pkg/disconnect", "pkg/item", "pkg/postrestore", "pkg/restore", "pkg/standby",
	"velero-plugins/deploymentconfig", "velero-plugins/pod", "velero-plugins/replicationcontroller",
}

const (
	sentencesGolden = "testdata/sentences.golden"
	troubleshooting = "docs/troubleshooting.md"
)

// TestEverySentenceIsExplained lists every sentence that the source can say, by reading it: a list made by running it would
// miss what no test runs. The golden file shows a change of a sentence to whoever reviews it, and docs/troubleshooting.md must
// explain each, and nothing that is not said any more. `…` stands for what a sentence is filled in with.
func TestEverySentenceIsExplained(t *testing.T) {
	t.Parallel()
	said := map[string]bool{}
	for _, dir := range speaking {
		for _, sentence := range sentencesOf(t, dir) {
			said[sentence] = true
		}
	}
	sentences := slices.Sorted(maps.Keys(said))
	got := strings.Join(sentences, "\n") + "\n"
	if os.Getenv("UPDATE_GOLDEN") != "" {
		require.NoError(t, os.WriteFile(sentencesGolden, []byte(got), 0o644))
	}
	want, err := os.ReadFile(sentencesGolden)
	require.NoError(t, err)
	assert.Equal(t, string(want), got, "the sentences have changed: UPDATE_GOLDEN=1 go test . -run TestEverySentence, and explain them in %s", troubleshooting)

	page, err := os.ReadFile(troubleshooting)
	require.NoError(t, err)
	explained := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`.+?`) \\|").FindAllStringSubmatch(string(page), -1) {
		for _, sentence := range regexp.MustCompile("``? ?(.+?) ?``?(?:<br>|$)").FindAllStringSubmatch(row[1], -1) {
			explained[sentence[1]] = true
		}
	}
	for _, sentence := range sentences {
		assert.True(t, explained[sentence], "%s does not explain: %s", troubleshooting, sentence)
	}
	for sentence := range explained {
		assert.True(t, said[sentence], "%s explains what is not said: %s", troubleshooting, sentence)
	}
}

// sentencesOf returns the sentences in the source of a package.
func sentencesOf(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	require.NotEmpty(t, files, dir)
	var found []string
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		reader := sentenceReader{}
		ast.Inspect(file, reader.visit)
		found = append(found, reader.found...)
	}
	return found
}

// sentenceReader collects the sentences of a file.
type sentenceReader struct{ found []string }

var (
	// verb is one of package fmt's.
	verb = regexp.MustCompile(`%[-+#]?(\[\d+\])?\*?[0-9.]*\*?[a-zA-Z]`)
	// sentence has two words at least, or says what is being done. What begins as a command line does is none.
	sentence = regexp.MustCompile(`[[:alpha:]]{2}.* .*[[:alpha:]]{2}|^[a-z]+ing …$`)
	command  = regexp.MustCompile(`^(kubectl|velero) -n |^post-restore `)
	filled   = regexp.MustCompile(`…+`)
	// help are what cobra shows in a help page and kubectl's printer above a table.
	help     = regexp.MustCompile(`^(Use|Short|Long|Example|name)$`)
	flagHelp = regexp.MustCompile(`Var(P)?$`)
)

// visit is called for each node. It looks at whole expressions, from the outside in.
func (r *sentenceReader) visit(node ast.Node) bool {
	switch n := node.(type) {
	case *ast.ImportSpec:
		return false
	case *ast.KeyValueExpr:
		key, ok := n.Key.(*ast.Ident)
		return !ok || !help.MatchString(key.Name)
	case *ast.ValueSpec:
		return !strings.HasSuffix(n.Names[0].Name, "Long")
	case *ast.CallExpr:
		name := calledName(n)
		if name == "Sprintf" || name == "Errorf" {
			r.add(n)
			r.insideOf(n)
			return false
		}
		// The flags' help, patterns, and the two forms of a noun.
		return !flagHelp.MatchString(name) && name != "MustCompile" && name != "count"
	case *ast.BinaryExpr:
		if n.Op == token.ADD {
			r.add(n)
			r.insideOf(n)
			return false
		}
	case *ast.BasicLit:
		r.add(n)
	}
	return true
}

// insideOf visits what an expression is filled in with.
func (r *sentenceReader) insideOf(expr ast.Expr) {
	switch n := expr.(type) {
	case *ast.BinaryExpr:
		for _, operand := range []ast.Expr{n.X, n.Y} {
			if _, literal := operand.(*ast.BasicLit); !literal {
				r.insideOf(operand)
			}
		}
	case *ast.CallExpr:
		if name := calledName(n); name == "Sprintf" || name == "Errorf" {
			for _, arg := range n.Args[1:] {
				ast.Inspect(arg, r.visit)
			}
			return
		}
		ast.Inspect(n, r.visit)
	default:
		ast.Inspect(n, r.visit)
	}
}

func (r *sentenceReader) add(expr ast.Expr) {
	text := strings.TrimSpace(filled.ReplaceAllString(spoken(expr), "…"))
	if sentence.MatchString(text) && !command.MatchString(text) {
		r.found = append(r.found, text)
	}
}

// spoken returns the text of an expression, with `…` for what is known at run time only.
func spoken(expr ast.Expr) string {
	switch n := expr.(type) {
	case *ast.BasicLit:
		if n.Kind == token.STRING {
			text, err := strconv.Unquote(n.Value)
			if err == nil {
				return verb.ReplaceAllString(text, "…")
			}
		}
	case *ast.BinaryExpr:
		return spoken(n.X) + spoken(n.Y)
	case *ast.ParenExpr:
		return spoken(n.X)
	case *ast.CallExpr:
		if name := calledName(n); (name == "Sprintf" || name == "Errorf") && len(n.Args) > 0 {
			return spoken(n.Args[0])
		}
	}
	return "…"
}

// calledName returns the name of the function that is called, without its package.
func calledName(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	default:
		return ""
	}
}
