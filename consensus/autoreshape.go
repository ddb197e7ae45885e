package consensus

import (
	"context"
	"maps"
	"strconv"
	"time"

	"github.com/google/uuid"

	"skein/catalog"
	"skein/sqlstate"
)

// Settings of splits and merges that nobody asks for.
const (
	SettingAutoSplit    = "auto_split"
	SettingSplitBytes   = "split_bytes"
	SettingSplitLoad    = "split_load"
	SettingReshapePause = "reshape_pause"
)

// reshapeSettings are the settings of this file. A table may turn the first off
// for itself.
var reshapeSettings = []Setting{
	{SettingAutoSplit, "true", "split tablets that are large or busy, and merge neighbours that splits made and that are small again", boolValue},
	{SettingSplitBytes, "4294967296", "encoded bytes of a tablet above which it is split; two that have an eighth of it together may be merged", intValue(1<<10, 1<<50)},
	{SettingSplitLoad, "20000", "reads and writes of a tablet in a second, for half a minute, above which it is split; 0 for never", intValue(0, 1<<40)},
	{SettingReshapePause, "10m0s", "how long after a split or merge its tablets are left as they are", durationValue(time.Second, 24*time.Hour)},
}

const (
	// surveyEvery is how often sizes and loads are looked at.
	surveyEvery = 5 * time.Second
	// busySurveys in a row make a tablet busy.
	busySurveys = 6
	// mergeShare of split_bytes, and of split_load, is what two tablets may have
	// together to be merged: far from what would split them again.
	mergeShare = 8
	// autoTablets bounds, by their number per node, the tablets that load makes.
	autoTablets = 4
)

// value is a setting's value, or its default.
func (s *MetaSnapshot) value(name string) string {
	if v, ok := s.Settings[name]; ok {
		return v
	}
	setting, _ := settingNamed(name)
	return setting.Default
}

func (s *MetaSnapshot) number(name string) uint64 {
	n, _ := strconv.ParseUint(s.value(name), 10, 64) // checked when it was set
	return n
}

// tabletLoad is what surveys have seen of a tablet.
type tabletLoad struct {
	operations uint64 // of the replica, at the last survey
	at         time.Time
	rate       uint64 // per second
	busy       int    // surveys in a row above the bound
}

// survey asks for splits and merges of the tablets that this node leads. It is
// called by one goroutine.
func (r *reshaper) survey(ctx context.Context, snapshot *MetaSnapshot) {
	if time.Since(r.surveyed) < r.surveyEvery {
		return
	}
	r.surveyed = time.Now()
	loads := make(map[catalog.TabletID]*tabletLoad, len(r.loads))
	for _, t := range snapshot.Tables {
		for i := range t.Tablets {
			if id := t.Tablets[i].ID; r.leads(id) {
				loads[id] = r.loads[id].next(r.host.operations(id), snapshot.number(SettingSplitLoad))
			}
		}
	}
	r.loads = loads
	maps.DeleteFunc(r.refused, func(id catalog.TabletID, _ uint64) bool { return loads[id] == nil })
	if snapshot.value(SettingAutoSplit) != "true" {
		return
	}
	for _, t := range snapshot.Tables {
		if t.ManualSplit || snapshot.reshaping(t.ID) {
			continue
		}
		if err := r.suggest(ctx, snapshot, t); err != nil && ctx.Err() == nil && sqlstate.CodeOf(err) != sqlstate.ObjectInUse {
			r.host.log.Warn("a tablet could not be split or merged", "table", t.QualifiedName(), "error", err)
		}
	}
}

// next is the load after another survey.
func (l *tabletLoad) next(operations, bound uint64) *tabletLoad {
	now := time.Now()
	next := &tabletLoad{operations: operations, at: now}
	if l == nil || operations < l.operations {
		return next
	}
	next.rate = uint64(float64(operations-l.operations) / max(now.Sub(l.at).Seconds(), 0.001))
	if bound > 0 && next.rate > bound {
		next.busy = l.busy + 1
	}
	return next
}

// reshaping reports whether a table has a split or merge under way: one at a time
// is done unasked.
func (s *MetaSnapshot) reshaping(table catalog.TableID) bool {
	for i := range s.Jobs {
		if _, ok := s.Jobs[i].Reshape(); ok && s.Jobs[i].Table == table && s.Jobs[i].State == JobRunning {
			return true
		}
	}
	return false
}

// rests reports whether a tablet was made by a split or merge too lately, or has
// had one given up, to be reshaped again.
func (s *MetaSnapshot) rests(id catalog.TabletID) bool {
	pause, _ := time.ParseDuration(s.value(SettingReshapePause)) // checked when it was set
	for i := range s.Jobs {
		job := &s.Jobs[i]
		r, ok := job.Reshape()
		if !ok || time.Since(time.UnixMilli(job.UpdatedUnixMS)) >= pause {
			continue
		}
		for _, tablet := range append(r.Sources, r.Targets...) {
			if tablet.ID == id {
				return true
			}
		}
	}
	return false
}

// suggest begins a split or else a merge of tablets of a table, if one is due.
func (r *reshaper) suggest(ctx context.Context, snapshot *MetaSnapshot, t *catalog.Table) error {
	ctx, cancel := context.WithTimeout(ctx, reshapePatience)
	defer cancel()
	if len(t.PartitionIDs()) == 0 || len(t.Tablets) >= maxTablets {
		return nil
	}
	large := snapshot.number(SettingSplitBytes)
	for i := range t.Tablets {
		tablet := &t.Tablets[i]
		load := r.loads[tablet.ID]
		if load == nil || snapshot.rests(tablet.ID) || r.refused[tablet.ID] == t.Layout+1 {
			continue
		}
		busy := load.busy >= busySurveys && len(t.Tablets) < autoTablets*len(snapshot.Nodes)
		if r.bytes(tablet.ID) <= large && !busy {
			continue
		}
		_, err := r.meta.SplitTablet(ctx, SplitTablet{
			RequestID: uuid.NewString(), Tablet: tablet.ID, Automatic: true, AtUnixMS: time.Now().UnixMilli(),
		})
		if sqlstate.CodeOf(err) == sqlstate.FeatureNotSupported {
			r.refused[tablet.ID] = t.Layout + 1 // and will be, until its table is another
			return err
		}
		return err
	}
	for i := range t.Tablets[:len(t.Tablets)-1] {
		if lower, upper := &t.Tablets[i], &t.Tablets[i+1]; r.small(snapshot, lower, upper, large) {
			_, err := r.meta.ReshapeTablets(ctx, ReshapeTablets{
				RequestID: uuid.NewString(), Kind: JobMerge, Tablets: []catalog.TabletID{lower.ID, upper.ID}, Automatic: true, AtUnixMS: time.Now().UnixMilli(),
			})
			if sqlstate.CodeOf(err) == sqlstate.FeatureNotSupported {
				continue // their replicas are on different nodes
			}
			return err
		}
	}
	return nil
}

// small reports whether two neighbours that splits or merges made are to be
// merged. Tablets that a table was created with stay.
func (r *reshaper) small(snapshot *MetaSnapshot, lower, upper *catalog.Tablet, large uint64) bool {
	rate := uint64(0)
	for _, tablet := range []*catalog.Tablet{lower, upper} {
		replica, here := r.host.Tablet(tablet.ID)
		if !here || replica.Seal().Sealed || !snapshot.follows(tablet.ID) || snapshot.rests(tablet.ID) {
			return false
		}
		if load := r.loads[tablet.ID]; load != nil {
			rate += load.rate
		}
	}
	busy := snapshot.number(SettingSplitLoad)
	return r.loads[lower.ID] != nil && r.bytes(lower.ID)+r.bytes(upper.ID) <= large/mergeShare && (busy == 0 || rate <= busy/mergeShare)
}

// follows reports whether a tablet took the place of others.
func (s *MetaSnapshot) follows(id catalog.TabletID) bool {
	for i := range s.Successors {
		for _, follower := range s.Successors[i].Followers {
			if follower == id {
				return true
			}
		}
	}
	return false
}

func (r *reshaper) bytes(id catalog.TabletID) uint64 {
	tablet, ok := r.host.Tablet(id)
	if !ok {
		return 0
	}
	return tablet.Bytes()
}

// operations counts the reads and proposals of this node on a tablet.
func (h *Host) operations(id catalog.TabletID) uint64 {
	r, ok := h.replica(id)
	if !ok {
		return 0
	}
	return uint64(r.uses.Load())
}
