package flightproto

import (
	"context"
	"math"
	"time"

	"skein/flightproto/pb"
	"skein/planner"
)

// maxReported bounds the fragments of one report and the operators of one
// fragment: far more than a worker holds or a plan has.
const maxReported = 1 << 14

// EncodeReport encodes what fragments did.
func EncodeReport(fragments []planner.FragmentStats) *pb.ReportResponse {
	out := &pb.ReportResponse{Fragments: make([]*pb.FragmentReport, len(fragments))}
	for i, f := range fragments {
		p := &pb.FragmentReport{
			Fragment: uint32(f.Fragment), Node: f.Node, TimeNanos: unsigned(f.Time), MemoryBytes: unsigned(f.Memory),
			Operators: make([]*pb.OperatorReport, len(f.Operators)),
		}
		for k := range f.Operators {
			p.Operators[k] = encodeOperatorStats(&f.Operators[k])
		}
		out.Fragments[i] = p
	}
	return out
}

func encodeOperatorStats(s *planner.OperatorStats) *pb.OperatorReport {
	p := &pb.OperatorReport{
		Parts: uint32(s.Parts), Rows: s.Rows, Batches: s.Batches,
		TimeNanos: unsigned(s.Time), SelfNanos: unsigned(s.Self), CpuNanos: unsigned(s.CPU),
		MemoryBytes: unsigned(s.Memory), SpilledBytes: unsigned(s.Spilled), ReceivedBytes: unsigned(s.Received),
		DroppedRows: s.Dropped,
	}
	if s.Scan != nil {
		p.Scan = &pb.ScanReport{
			Segments: unsigned(s.Scan.Segments), SegmentsRead: unsigned(s.Scan.SegmentsRead),
			Blocks: unsigned(s.Scan.Blocks), BlocksRead: unsigned(s.Scan.BlocksRead), Rows: s.Scan.Rows,
		}
	}
	return p
}

// unsigned takes a count to the wire; clocks may make a small one negative.
func unsigned[T ~int | ~int64](n T) uint64 { return uint64(max(n, 0)) }

// DecodeReport reverses EncodeReport. It refuses what no worker would report
// with a *MalformedError or *SizeError.
func DecodeReport(p *pb.ReportResponse) ([]planner.FragmentStats, error) {
	if n := len(p.GetFragments()); n > maxReported {
		return nil, &SizeError{What: "number of fragments in a report", Size: n, Limit: maxReported}
	}
	var d reportDecoder
	out := make([]planner.FragmentStats, len(p.GetFragments()))
	for i, f := range p.GetFragments() {
		if n := len(f.GetOperators()); n > maxReported {
			return nil, &SizeError{What: "number of operators in a report", Size: n, Limit: maxReported}
		}
		out[i] = planner.FragmentStats{
			Fragment: planner.FragmentID(f.GetFragment()), Node: f.GetNode(),
			Time: time.Duration(d.signed(f.GetTimeNanos())), Memory: d.signed(f.GetMemoryBytes()),
			Operators: make([]planner.OperatorStats, len(f.GetOperators())),
		}
		for k, o := range f.GetOperators() {
			out[i].Operators[k] = d.operator(o)
		}
	}
	return out, d.err
}

// reportDecoder keeps the first error.
type reportDecoder struct{ err error }

func (d *reportDecoder) signed(n uint64) int64 {
	if n > math.MaxInt64 {
		d.err = malformed("a report has the count %d", n)
		return 0
	}
	return int64(n)
}

func (d *reportDecoder) small(n uint64) int {
	if n > math.MaxInt32 {
		d.err = malformed("a report has the count %d", n)
		return 0
	}
	return int(n)
}

func (d *reportDecoder) operator(o *pb.OperatorReport) planner.OperatorStats {
	s := planner.OperatorStats{
		Parts: d.small(uint64(o.GetParts())), Rows: o.GetRows(), Batches: o.GetBatches(),
		Time: time.Duration(d.signed(o.GetTimeNanos())), Self: time.Duration(d.signed(o.GetSelfNanos())), CPU: time.Duration(d.signed(o.GetCpuNanos())),
		Memory: d.signed(o.GetMemoryBytes()), Spilled: d.signed(o.GetSpilledBytes()), Received: d.signed(o.GetReceivedBytes()),
		Dropped: o.GetDroppedRows(),
	}
	if scan := o.GetScan(); scan != nil {
		s.Scan = &planner.ScanStats{
			Segments: d.small(scan.GetSegments()), SegmentsRead: d.small(scan.GetSegmentsRead()),
			Blocks: d.small(scan.GetBlocks()), BlocksRead: d.small(scan.GetBlocksRead()), Rows: scan.GetRows(),
		}
	}
	return s
}

// Report ends a query that was started with measure and returns what its
// fragments on the worker did, without those that never ran. The authorization is
// for the query.
func (c *Conn) Report(ctx context.Context, queryID string, authorization []byte) ([]planner.FragmentStats, error) {
	response := &pb.ReportResponse{}
	if err := c.call(ctx, ActionReport, &pb.ReportRequest{QueryId: queryID, Authorization: authorization}, response); err != nil {
		return nil, err
	}
	return DecodeReport(response)
}

// ScanProgress is how far a query's scans on a worker are: how many there are,
// the blocks of rows that they read, and those that they have read. Fragments are
// those that the worker holds.
type ScanProgress struct{ Scans, Blocks, Done, Fragments uint64 }

// Progress asks how far a running query is on the worker; a query that it does
// not know has no scans and no fragments. The authorization is for the query.
func (c *Conn) Progress(ctx context.Context, queryID string, authorization []byte) (ScanProgress, error) {
	response := &pb.ReportResponse{}
	request := &pb.ReportRequest{QueryId: queryID, Authorization: authorization, Running: true}
	if err := c.call(ctx, ActionReport, request, response); err != nil {
		return ScanProgress{}, err
	}
	p := response.GetProgress()
	if p.GetBlocksDone() > p.GetBlocks() {
		return ScanProgress{}, malformed("%d of %d blocks are said to be read", p.GetBlocksDone(), p.GetBlocks())
	}
	return ScanProgress{Scans: p.GetScans(), Blocks: p.GetBlocks(), Done: p.GetBlocksDone(), Fragments: uint64(p.GetFragments())}, nil
}
