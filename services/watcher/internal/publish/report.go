package publish

import (
	"slices"
	"time"

	"github.com/weftmesh/weft/services/kit/obs"
	"github.com/weftmesh/weft/services/watcher/internal/shape"
	"github.com/weftmesh/weft/services/watcher/internal/source"
)

// maxNamed is how many skipped objects a presence names; the rest is counted.
const maxNamed = 32

// Report is what the publisher last knew of what it reads. It never changes.
type Report struct {
	// Skipped are the first 32 things that were skipped, files before objects.
	Skipped []source.Skipped
	// Total is how many were skipped.
	Total int
	// Objects counts what is known by kind.
	Objects map[shape.Kind]int
}

// Report is the newest one.
func (p *Publisher) Report() *Report { return p.report.Load() }

// rival is named as if it were an object, so that weft status shows it.
var rival = source.Skipped{Object: "the log", Reason: "another watcher writes it too; two with -source dir must not share a bus"}

// tell makes the report and logs problems that are new.
func (p *Publisher) tell(trouble source.Trouble) {
	for _, news := range p.state.News() {
		p.logger.Warn("object skipped", obs.Object(news.String()), obs.Reason(news.Text()))
	}
	old := p.report.Load()
	r := &Report{Objects: p.state.Counts(), Total: len(trouble.Skipped)}
	r.Skipped = append(r.Skipped, trouble.Skipped[:min(maxNamed, len(trouble.Skipped))]...)
	problems, total := p.state.Skipped(maxNamed - len(r.Skipped))
	r.Total += total
	if p.rival || p.ousted > 1 && time.Since(p.ledAt) <= calm {
		r.Total++
		r.Skipped = slices.Insert(r.Skipped, 0, rival)
	}
	for _, problem := range problems {
		r.Skipped = append(r.Skipped, source.Skipped{Object: problem.String(), Reason: problem.Text()})
	}
	p.report.Store(r)
	for _, s := range trouble.Skipped[:min(maxNamed, len(trouble.Skipped))] {
		if !contains(old.Skipped, s) {
			p.logger.Warn("file skipped", obs.Object(s.Object), obs.Reason(s.Reason))
		}
	}
}

func contains(list []source.Skipped, s source.Skipped) bool {
	return slices.Contains(list, s)
}
