package cli

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// screen returns the size of the terminal that something is shown on, in characters. ok is false when it is none.
type screen func() (width, height int, ok bool)

// screenOf returns the screen that out is. It is asked again at every drawing: people resize their windows. A terminal that
// cannot move its cursor (TERM=dumb) is none.
func screenOf(out io.Writer) screen {
	file, isFile := out.(*os.File)
	if !isFile || !term.IsTerminal(int(file.Fd())) || os.Getenv("TERM") == "dumb" {
		return func() (int, int, bool) { return 0, 0, false }
	}
	return func() (int, int, bool) {
		width, height, err := term.GetSize(int(file.Fd()))
		return width, height, err == nil && width > 0 && height > 0
	}
}

// canvas is a part of a terminal that is drawn over again and again.
type canvas struct {
	out    io.Writer
	screen screen
	// drawn is how many lines are drawn over next time.
	drawn int
}

// draw draws a first line and the lines below it over what was drawn before. Lines that are too long are wrapped; the last
// ones that do not fit are left out, and counted.
func (c *canvas) draw(head string, lines []string) error {
	width, height, ok := c.screen()
	if !ok {
		return nil
	}
	lines = wrap(append([]string{head}, lines...), width)
	if room := max(height-1, 1); len(lines) > room {
		hidden := len(lines) - room + 1
		lines = append(lines[:len(lines)-hidden:len(lines)-hidden], fmt.Sprintf("… and %d more", hidden))
	}
	return c.put("", lines)
}

// put writes a text above, and below it lines that fit the screen, over what was drawn before. It is one write, so that
// nothing flickers.
func (c *canvas) put(above string, lines []string) error {
	var b strings.Builder
	b.WriteString(c.erase() + above)
	for _, line := range lines {
		b.WriteString(line + "\n")
	}
	c.drawn = len(lines)
	if _, err := io.WriteString(c.out, b.String()); err != nil {
		return failed(fmt.Errorf("write to the terminal: %w", err))
	}
	return nil
}

// erase returns what moves the cursor to the first drawn line and clears the screen from there on.
func (c *canvas) erase() string {
	if c.drawn == 0 {
		return ""
	}
	return fmt.Sprintf("\x1b[%dA\x1b[J", c.drawn)
}

// leave leaves what is drawn where it is.
func (c *canvas) leave() { c.drawn = 0 }

// wrap breaks lines that are too long for the width between words, or within a word that is. What goes on is indented.
func wrap(lines []string, width int) []string {
	const indent = "  "
	room := max(width-1, len(indent)+1)
	var wrapped []string
	for _, line := range lines {
		for rest := []rune(line); ; {
			if len(rest) <= room {
				wrapped = append(wrapped, string(rest))
				break
			}
			end := room
			if blank := strings.LastIndex(string(rest[:room]), " "); blank > len(indent) {
				end = len([]rune(string(rest[:room])[:blank]))
			}
			wrapped = append(wrapped, string(rest[:end]))
			rest = []rune(indent + strings.TrimLeft(string(rest[end:]), " "))
		}
	}
	return wrapped
}

// cut shortens a line to one character less than the width: a full line would be wrapped, and count as two.
func cut(line string, width int) string {
	if runes := []rune(line); len(runes) >= width {
		return string(runes[:max(width-2, 0)]) + "…"
	}
	return line
}
