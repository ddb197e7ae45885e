package planner

import "time"

// FragmentStats is what a fragment did when it ran.
type FragmentStats struct {
	Fragment FragmentID
	// Node is the worker that ran it, 0 for the gateway.
	Node uint64
	// Time is from before its inputs were opened until all were closed.
	Time time.Duration
	// Memory is the most bytes that its operators held at once.
	Memory int64
	// Operators are parallel to the fragment's.
	Operators []OperatorStats
}

// OperatorStats is what one operator of one fragment did. An operator that runs
// as several parallel parts has the sum of what they did, unless said otherwise.
type OperatorStats struct {
	Parts   int    // goroutines' worth of it; 0 if it never came to be
	Rows    uint64 // put out
	Batches uint64 // put out
	// Time is what was spent in the operator and in what it waited for, its
	// inputs included, by the part that took longest.
	Time time.Duration
	// Self is what was spent in the operator without its inputs, and CPU how much
	// of it a processor was at work. Both are 0 where the operating system does
	// not tell.
	Self, CPU time.Duration
	// Memory is the most bytes held at once, Spilled the bytes written to disk.
	Memory, Spilled int64
	// Received is the bytes of messages that an ExchangeSource got.
	Received int64
	// Dropped are rows that filters made by joins above took out here.
	Dropped uint64
	// Scan is set for a TabletScan.
	Scan *ScanStats
}

// ScanStats is what a scan of one tablet looked at. The rest was known, from
// bounds and key indexes, to hold no row that the filter accepts.
type ScanStats struct {
	Segments, SegmentsRead int
	Blocks, BlocksRead     int
	Rows                   uint64 // read, before the filter
}
