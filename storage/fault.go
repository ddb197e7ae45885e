package storage

// FaultPoint names a place where a process may die that recovery has to cope
// with. Options.Fault is called there.
type FaultPoint string

// The places, in the order in which a store comes to them. FaultPoints lists
// them all.
const (
	// A log entry is applied.
	FaultApplyFlush  FaultPoint = "apply: between two transactions of one group"
	FaultApplyCommit FaultPoint = "apply: before the effect is written"
	FaultApplied     FaultPoint = "apply: after the effect is written"
	FaultStagePart   FaultPoint = "stage: a part is in the transaction, its record is not"

	// The store becomes durable.
	FaultSyncFiles FaultPoint = "sync: before the files are synced"
	FaultSyncMark  FaultPoint = "sync: files are synced, the mark is not written"
	FaultSynced    FaultPoint = "sync: after the mark is written"

	// Segments are merged.
	FaultMerged         FaultPoint = "compact: segments are merged, nothing is written"
	FaultManifestSwitch FaultPoint = "compact: before the manifest is switched"
	FaultSwitched       FaultPoint = "compact: after the manifest is switched"
	FaultCollect        FaultPoint = "compact: before replaced segments are deleted"
	FaultCollected      FaultPoint = "compact: after replaced segments are deleted"
	FaultReclaim        FaultPoint = "reclaim: values are moved, their old file is there"

	// A snapshot is saved and installed.
	FaultSaveFrame     FaultPoint = "snapshot: a frame is saved"
	FaultInstallFrame  FaultPoint = "snapshot: a frame is received"
	FaultInstallStaged FaultPoint = "snapshot: received whole, not current"
	FaultInstallHead   FaultPoint = "snapshot: durable, not current"
	FaultInstalled     FaultPoint = "snapshot: current, the old state is there"

	// A store is opened after it was not closed.
	FaultRollback   FaultPoint = "open: while writes that were not synced are taken back"
	FaultRolledBack FaultPoint = "open: writes are taken back, the mark is not written"
	FaultOpenMark   FaultPoint = "open: the database is open, the mark is not written"
	FaultCloseMark  FaultPoint = "close: the database is closed, the mark is not written"
)

// FaultPoints lists all places.
func FaultPoints() []FaultPoint {
	return []FaultPoint{
		FaultApplyFlush, FaultApplyCommit, FaultApplied, FaultStagePart,
		FaultSyncFiles, FaultSyncMark, FaultSynced,
		FaultMerged, FaultManifestSwitch, FaultSwitched, FaultCollect, FaultCollected, FaultReclaim,
		FaultSaveFrame, FaultInstallFrame, FaultInstallStaged, FaultInstallHead, FaultInstalled,
		FaultRollback, FaultRolledBack, FaultOpenMark, FaultCloseMark,
	}
}

// fault tells a test that a place is reached.
func (o *Options) fault(p FaultPoint) {
	if o.Fault != nil {
		o.Fault(p)
	}
}
