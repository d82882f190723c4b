package cli

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/oadp-dr/velero-plugin-for-openshift-dr/pkg/postrestore"
)

// progress shows how far a run is: on a terminal one line per DeploymentConfig that is drawn over, with a bar where there is
// room for one; elsewhere a line whenever a sentence changes. Safe for concurrent use.
type progress struct {
	clock  clock.PassiveClock
	start  time.Time
	colour bool

	mu     sync.Mutex
	canvas canvas
	// last is what was drawn last, to be drawn again below a note.
	last []progressLine
	// said is the last sentence about each DeploymentConfig.
	said map[string]string
	// pods is how many detached pods each DeploymentConfig had at most.
	pods map[types.NamespacedName]int
	// noted are the notes given: each is given once.
	noted map[string]bool
}

// progressLine is what is shown of one DeploymentConfig.
type progressLine struct{ about, bar, colour, sentence string }

func newProgress(s surroundings) *progress {
	return &progress{
		clock: s.clock, start: s.clock.Now(), canvas: canvas{out: s.errOut, screen: s.screen},
		colour: s.getenv(noColour) == "",
		said:   map[string]string{}, pods: map[types.NamespacedName]int{}, noted: map[string]bool{},
	}
}

func (p *progress) elapsed() string {
	return fmt.Sprintf("%4ds", int(p.clock.Since(p.start).Seconds()))
}

// observe shows a report. err is why the cluster could not be looked at this time; the report is then the last one.
func (p *progress) observe(report postrestore.Report, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	lines := make([]progressLine, 0, len(report.Results)+1)
	// What has ended comes first: on a small terminal the beginning is cut off.
	for _, ended := range []bool{true, false} {
		for _, result := range report.Results {
			p.pods[result.Name] = max(p.pods[result.Name], result.Step.Total)
			if result.Ended() == ended {
				lines = append(lines, progressLine{result.Name.String(), bar(result, p.pods[result.Name]), colourOf(result), oneLine(result.Sentence())})
			}
		}
	}
	if err != nil {
		lines = append(lines, progressLine{sentence: "cannot look at the cluster, trying again: " + oneLine(err.Error())})
	}
	if _, _, ok := p.canvas.screen(); ok {
		p.last = lines
		p.draw("")
		return
	}
	if err == nil {
		delete(p.said, "")
	}
	for _, l := range lines {
		if p.said[l.about] != l.sentence {
			p.said[l.about] = l.sentence
			tell(p.canvas.out, "%s  %s", p.elapsed(), l.plain())
		}
	}
}

func (l progressLine) plain() string {
	if l.about == "" {
		return l.sentence
	}
	return l.about + ": " + l.sentence
}

// draw draws the last lines over those drawn before, below a text.
func (p *progress) draw(above string) {
	width, height, ok := p.canvas.screen()
	if !ok {
		_ = p.canvas.put(above, nil) // nobody is left to tell an error of stderr to
		return
	}
	lines, hidden := p.last, 0
	if room := max(height-1, 1); len(lines) > room {
		hidden = len(lines) - room + 1
		lines = lines[hidden:]
	}
	drawn := make([]string, 0, len(lines)+1)
	if hidden > 0 {
		drawn = append(drawn, cut(fmt.Sprintf("%s  … and %d more", p.elapsed(), hidden), width))
	}
	longest := 0
	for _, l := range lines {
		longest = max(longest, len(l.about))
	}
	for _, l := range lines {
		drawn = append(drawn, p.render(l, longest, width))
	}
	_ = p.canvas.put(above, drawn) // as above
}

// render returns a line for a terminal. longest is the length of the longest name.
func (p *progress) render(l progressLine, longest, width int) string {
	if l.bar == "" || width < longest+len(l.bar)+roomForSentence {
		return cut(p.elapsed()+"  "+l.plain(), width)
	}
	line := cut(fmt.Sprintf("%s  %-*s  %s  %s", p.elapsed(), longest, l.about, l.bar, l.sentence), width)
	if p.colour && l.colour != "" {
		// After the cut, which counts characters that are seen.
		line = strings.Replace(line, l.bar, l.colour+l.bar+plainColour, 1)
	}
	return line
}

// note gives a line once, above what is drawn over.
func (p *progress) note(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.noted[line] {
		return
	}
	p.noted[line] = true
	p.draw(line + "\n")
}

// end leaves what is drawn where it is, for the table below it.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.canvas.leave()
	p.last = nil
}

// silent returns a logger that says nothing.
func silent() *logrus.Logger {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return log
}

// logger returns a logger for postrestore.Runner whose warnings become notes. What happens to a DeploymentConfig is not
// said twice: its step and its error stand in its sentence.
func (p *progress) logger() *logrus.Logger {
	log := silent()
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
