package consensus

import (
	"context"
	"fmt"

	"skein/catalog"
	"skein/sqlstate"
)

// MetaSplitTablet splits a tablet where the node that is asked, which must have a
// replica of it, finds the middle of its rows: SplitTablet -> TableReply.
const MetaSplitTablet = "split_tablet"

// SplitTablet asks for the split of a tablet.
type SplitTablet struct {
	RequestID string           `json:"request_id"`
	Tablet    catalog.TabletID `json:"tablet"`
	// At is where to split it, nil for the middle.
	At        *catalog.Splitter `json:"at,omitempty"`
	Automatic bool              `json:"automatic,omitempty"`
	AtUnixMS  int64             `json:"at_unix_ms"`
}

// SplitTablet begins the split of a tablet and returns its job. SQLSTATE 0A000
// says that the tablet cannot be split.
func (m *Meta) SplitTablet(ctx context.Context, r SplitTablet) (TableReply, error) {
	table := m.Local().TableOf(r.Tablet)
	if table == nil {
		return TableReply{}, sqlstate.New(sqlstate.UndefinedObject, "tablet %d does not exist", r.Tablet)
	}
	if r.At == nil {
		described, _ := table.Tablet(r.Tablet)
		replica, ok := m.host.Tablet(r.Tablet)
		if !ok {
			return TableReply{}, fmt.Errorf("splitting tablet %d: %w", r.Tablet, ErrTabletNotHere)
		}
		at, err := replica.Midpoint(ctx, table, described)
		if err != nil {
			return TableReply{}, err
		}
		r.At = at
	}
	return m.ReshapeTablets(ctx, ReshapeTablets{
		RequestID: r.RequestID, Kind: JobSplit, Tablets: []catalog.TabletID{r.Tablet}, At: r.At, Automatic: r.Automatic, AtUnixMS: r.AtUnixMS,
	})
}
