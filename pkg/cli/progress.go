package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/term"
	"k8s.io/utils/clock"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/postrestore"
)

// screen returns the size of the terminal that progress is shown on, in characters. ok is false when it is none.
type screen func() (width, height int, ok bool)

// screenOf returns the screen that out is. It is asked again at every drawing: people resize their windows.
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

// progress shows how far a run is: on a terminal one line per DeploymentConfig that is drawn over, elsewhere a line
// whenever a sentence changes. Safe for concurrent use.
type progress struct {
	out    io.Writer
	clock  clock.PassiveClock
	start  time.Time
	screen screen

	mu sync.Mutex
	// drawn is how many lines of the terminal are drawn over next time.
	drawn int
	// last is what was drawn last, to be drawn again below a note.
	last []string
	// said is the last sentence about each DeploymentConfig.
	said map[string]string
	// noted are the notes given: each is given once.
	noted map[string]bool
}

func newProgress(s surroundings) *progress {
	return &progress{
		out: s.errOut, clock: s.clock, start: s.clock.Now(), screen: s.screen,
		said: map[string]string{}, noted: map[string]bool{},
	}
}

func (p *progress) elapsed() string {
	return fmt.Sprintf("%4ds", int(p.clock.Since(p.start).Seconds()))
}

// observe shows a report. err is why the cluster could not be looked at this time; the report is then the last one.
func (p *progress) observe(report postrestore.Report, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	type line struct{ about, sentence string }
	lines := make([]line, 0, len(report.Results)+1)
	// What has ended comes first: on a small terminal the beginning is cut off.
	for _, ended := range []bool{true, false} {
		for _, result := range report.Results {
			if result.Ended() == ended {
				lines = append(lines, line{result.Name.String() + ": ", oneLine(result.Sentence())})
			}
		}
	}
	if err != nil {
		lines = append(lines, line{"", "cannot look at the cluster, trying again: " + oneLine(err.Error())})
	}
	if _, _, ok := p.screen(); ok {
		p.last = p.last[:0]
		for _, l := range lines {
			p.last = append(p.last, p.elapsed()+"  "+l.about+l.sentence)
		}
		p.draw()
		return
	}
	if err == nil {
		delete(p.said, "")
	}
	for _, l := range lines {
		if p.said[l.about] != l.sentence {
			p.said[l.about] = l.sentence
			tell(p.out, "%s  %s%s", p.elapsed(), l.about, l.sentence)
		}
	}
}

// draw draws the last lines over those drawn before, in one write so that it does not flicker.
func (p *progress) draw() {
	width, height, ok := p.screen()
	if !ok {
		return
	}
	lines := p.last
	if room := max(height-1, 1); len(lines) > room {
		hidden := len(lines) - room + 1
		lines = append([]string{fmt.Sprintf("%s  … and %d more", p.elapsed(), hidden)}, lines[hidden:]...)
	}
	var b strings.Builder
	b.WriteString(p.erase())
	for _, line := range lines {
		// One character less than the width: a full line would be wrapped, and count as two.
		if runes := []rune(line); len(runes) >= width {
			line = string(runes[:max(width-2, 0)]) + "…"
		}
		b.WriteString(line + "\n")
	}
	p.drawn = len(lines)
	_, _ = io.WriteString(p.out, b.String()) // nobody is left to tell an error of stderr to
}

// erase returns what moves the cursor to the first drawn line and clears the screen from there on.
func (p *progress) erase() string {
	if p.drawn == 0 {
		return ""
	}
	return fmt.Sprintf("\x1b[%dA\x1b[J", p.drawn)
}

// note gives a line once, above what is drawn over.
func (p *progress) note(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.noted[line] {
		return
	}
	p.noted[line] = true
	_, _ = io.WriteString(p.out, p.erase()+line+"\n") // as above
	p.drawn = 0
	p.draw()
}

// end leaves what is drawn where it is, for the table below it.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drawn, p.last = 0, nil
}

// logger returns a logger for postrestore.Runner whose warnings become notes. What happens to a DeploymentConfig is not
// said twice: its step and its error stand in its sentence.
func (p *progress) logger() *logrus.Logger {
	log := logrus.New()
	log.SetOutput(io.Discard)
	log.SetLevel(logrus.WarnLevel)
	log.AddHook(notes{p})
	return log
}

// notes is the hook that passes warnings on.
type notes struct{ progress *progress }

// Levels implements logrus.Hook. An error of the runner always stands in a result.
func (notes) Levels() []logrus.Level { return []logrus.Level{logrus.WarnLevel} }

// Fire implements logrus.Hook.
func (n notes) Fire(entry *logrus.Entry) error {
	line := "warning: " + entry.Message
	if err, ok := entry.Data[logrus.ErrorKey].(error); ok {
		line += ": " + oneLine(err.Error())
	}
	n.progress.note(line)
	return nil
}
