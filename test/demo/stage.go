package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// width is that of a slide with large letters.
const width = 100

// stage prints. It may be used by several goroutines at once.
type stage struct {
	out    *os.File
	colour bool

	mu    sync.Mutex
	began time.Time // of what the elapsed times are shown for
}

// newStage returns a stage that writes to a file, in colours if that is a terminal and nobody objects (no-color.org).
func newStage(out *os.File) *stage {
	return &stage{out: out, colour: term.IsTerminal(int(out.Fd())) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// style is an ANSI rendition.
type style string

const (
	plain style = ""
	bold  style = "1"
	dim   style = "2"
	red   style = "31"
	green style = "32"
	blue  style = "36"
)

func (s *stage) paint(with style, text string) string {
	if !s.colour || with == plain {
		return text
	}
	return "\x1b[" + string(with) + "m" + text + "\x1b[0m"
}

func (s *stage) print(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintln(s.out, text)
}

// opening says what is shown, what is real, and, if that is a sentence, why more is not.
func (s *stage) opening(scene scene, why string) {
	s.print("\n" + s.paint(bold, "A DeploymentConfig and its data, through backup, loss and restore") + "\n")
	if why != "" {
		s.say("%s", why)
		s.print("")
	}
	s.entry("Real", scene.real+".")
	s.entry("Stand-ins", scene.standIns+".")
	s.print("")
}

// act begins a part of the story. Elapsed times count from the next start.
func (s *stage) act(number int, title string) {
	s.print("\n" + s.paint(bold, fmt.Sprintf("%d  %s", number, title)) + "\n")
}

// start sets the elapsed time to 0.
func (s *stage) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.began = time.Now()
}

func (s *stage) elapsed() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.began)
}

// say prints a sentence.
func (s *stage) say(format string, args ...any) {
	for _, line := range wrap(fmt.Sprintf(format, args...), width-3) {
		s.print("   " + line)
	}
}

// command prints a command as a user types it.
func (s *stage) command(args ...string) {
	s.print("   " + s.paint(blue, "$ "+strings.Join(args, " ")))
}

// quote prints the output of a command, one style for all of it.
func (s *stage) quote(lines []string) {
	for _, line := range lines {
		s.print("     " + s.paint(dim, line))
	}
}

// happened prints what happened to what, with the elapsed time.
func (s *stage) happened(what, format string, args ...any) { s.noticed(plain, what, format, args...) }

// noticed is happened in a style.
func (s *stage) noticed(with style, what, format string, args ...any) {
	const indent = 3 + 9 + 11
	at := fmt.Sprintf("%4.1f s", s.elapsed().Seconds())
	var text strings.Builder
	for i, line := range wrap(fmt.Sprintf(format, args...), width-indent) {
		if i > 0 {
			text.WriteString("\n" + strings.Repeat(" ", indent))
		}
		text.WriteString(s.paint(with, line))
	}
	s.print(fmt.Sprintf("   %s   %-11s%s", s.paint(dim, at), what, text.String()))
}

// entry prints a name and what belongs to it, without a time.
func (s *stage) entry(name, text string) {
	const indent = 3 + 12
	for i, line := range wrap(text, width-indent) {
		if i > 0 {
			name = ""
		}
		s.print("   " + s.paint(dim, fmt.Sprintf("%-12s", name)) + line)
	}
}

// during prints that something takes a while; what it returns prints how long it took, on the same line.
func (s *stage) during(what string) func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	began := time.Now()
	fmt.Fprintf(s.out, "   %s … ", what)
	return func() { s.print(s.paint(dim, fmt.Sprintf("%.1f s", time.Since(began).Seconds()))) }
}

// check prints a fact that was checked, and returns whether it holds.
func (s *stage) check(holds bool, format string, args ...any) bool {
	mark := s.paint(green, "✓")
	if !holds {
		mark = s.paint(red, "✗")
	}
	for i, line := range wrap(fmt.Sprintf(format, args...), width-5) {
		if i > 0 {
			mark = " "
		}
		s.print("   " + mark + " " + line)
	}
	return holds
}

func (s *stage) failed(err error) { s.print("\n" + s.paint(red, "error: ") + err.Error()) }

// wrap breaks a text into lines of at most so many characters, between words.
func wrap(text string, most int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len([]rune(line))+1+len([]rune(word)) > most {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
