package consensus

import (
	"context"
	"math/bits"
	"slices"

	"skein/catalog"
	"skein/sqlstate"
)

// MetaReportTablets tells what a node leads: ReportTablets -> TableReply.
const MetaReportTablets = "report_tablets"

// ReportTablets says which tablets a node leads and how big and busy they are. The
// last one of each node stands. It changes no version, and is not remembered: one is
// as good as another.
type ReportTablets struct {
	Node    catalog.NodeID `json:"node"`
	Tablets []TabletReport `json:"tablets"` // by id
}

// TabletReport describes a tablet, roughly, so that small changes are none.
type TabletReport struct {
	Tablet catalog.TabletID `json:"tablet"`
	Bytes  int64            `json:"bytes"` // of one replica, encoded
	Load   int64            `json:"load"`  // reads and writes per second, on the leader's node
}

// rough keeps the upper two bits of a number.
func rough(n int64) int64 {
	if n <= 0 {
		return 0
	}
	drop := max(bits.Len64(uint64(n))-2, 0)
	return n >> drop << drop
}

func (m *Meta) reportTablets(ctx context.Context, r ReportTablets) error {
	_, err := m.command(ctx, MetaReportTablets, r)
	return err
}

func (s *metaState) reportTablets(body []byte) metaAnswer {
	var r ReportTablets
	if err := decodeStrict(body, &r); err != nil {
		return rejected(sqlstate.New(sqlstate.InvalidParameter, "malformed request: %w", err))
	}
	if _, err := s.nodeNamed(r.Node); err != nil {
		return rejected(err)
	}
	if !slices.Equal(s.reports[r.Node], r.Tablets) {
		s.reports[r.Node] = r.Tablets
		s.write(recordReport, uint64(r.Node), r)
	}
	return s.accepted(nil)
}
