package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// width is that of a slide with large letters.
const width = 100

// ANSI renditions.
const (
	bold  = "1"
	dim   = "2"
	red   = "31"
	green = "32"
	blue  = "36"
)

// printer prints plain sentences, with colours if it writes to a terminal and nobody objects (no-color.org).
type printer struct {
	out    *os.File
	colour bool
	began  time.Time
}

func newPrinter(out *os.File) *printer {
	return &printer{out: out, colour: term.IsTerminal(int(out.Fd())) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

func (p *printer) line(text string) { fmt.Fprintln(p.out, text) }

func (p *printer) paint(rendition, text string) string {
	if !p.colour {
		return text
	}
	return "\x1b[" + rendition + "m" + text + "\x1b[0m"
}

// restart sets the time that happened shows to 0.
func (p *printer) restart() { p.began = time.Now() }

// act begins a part of the story.
func (p *printer) act(title string) {
	p.line("\n" + p.paint(bold, title) + "\n")
	p.restart()
}

// say prints a sentence.
func (p *printer) say(format string, args ...any) { p.block("   ", "", fmt.Sprintf(format, args...)) }

// happened prints a sentence with the time since the act began.
func (p *printer) happened(format string, args ...any) {
	p.at(time.Since(p.began), format, args...)
}

// at prints a sentence with a time since the act began.
func (p *printer) at(since time.Duration, format string, args ...any) {
	p.block(fmt.Sprintf("   %5.1f s   ", since.Seconds()), "", fmt.Sprintf(format, args...))
}

// command prints a command as a person types it.
func (p *printer) command(args ...string) { p.block("   $ ", blue, strings.Join(args, " ")) }

// quote prints what a program said.
func (p *printer) quote(text string) { p.block("     ", dim, text) }

// check prints a fact that was checked, and returns whether it holds.
func (p *printer) check(holds bool, format string, args ...any) bool {
	mark := p.paint(green, "✓")
	if !holds {
		mark = p.paint(red, "✗")
	}
	p.line("   " + mark + " " + fmt.Sprintf(format, args...))
	return holds
}

// block prints a text in lines, the first after a head and the others below it.
func (p *printer) block(head, rendition, text string) {
	indent := strings.Repeat(" ", len(head))
	line := ""
	flush := func() {
		if rendition != "" {
			line = p.paint(rendition, line)
		}
		p.line(head + line)
		head, line = indent, ""
	}
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(indent)+len([]rune(line))+1+len([]rune(word)) > width {
			flush()
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	flush()
}
