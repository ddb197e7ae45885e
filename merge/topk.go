package merge

import (
	"cmp"
	"fmt"
	"slices"

	"skein/catalog"
)

// Candidate is one ranked row: its score as an order-preserving key (see
// ScoreKey), and its identity, which breaks ties.
type Candidate struct {
	Score  uint64
	Tablet catalog.TabletID
	Row    uint64 // row id, unique within the tablet
}

// Compare orders candidates best first: by descending score, then ascending
// tablet, then ascending row id. No two rows of a table compare equal.
func Compare(a, b Candidate) int {
	return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Tablet, b.Tablet), cmp.Compare(a.Row, b.Row))
}

// Contribution is what one tablet has sent so far, or one more batch of it.
type Contribution struct {
	Tablet catalog.TabletID
	// Rows are the tablet's best rows, best first. Each batch continues where
	// the one before ended.
	Rows []Candidate
	// Exhausted is set when the tablet has no rows but those it sent. Else no
	// unseen row scores above Bound.
	Exhausted bool
	Bound     uint64
}

// MergeTopK ranks the received rows. winners are the best k of them, best
// first; refill names, in ascending order, the tablets whose unseen rows might
// belong among the true top k. When refill is empty, winners are exactly the
// top k of all rows of all tablets.
//
// The reason: an unseen row of tablet t ranks at best like (Bound, t, row 0).
// If that is worse than the last of k winners no row of t can displace one, and
// an exhausted tablet has no unseen rows. With fewer than k rows received every
// unseen row would be a winner. An unseen row that ties may turn out to rank
// lower, as its row id is unknown; the refill is then asked for in vain, which
// costs a round trip but never a wrong answer.
func MergeTopK(received []Contribution, k int) (winners []Candidate, refill []catalog.TabletID) {
	if k <= 0 {
		return nil, nil
	}
	total := 0
	for _, c := range received {
		total += len(c.Rows)
	}
	winners = make([]Candidate, 0, total)
	for _, c := range received {
		winners = append(winners, c.Rows...)
	}
	slices.SortFunc(winners, Compare)
	winners = winners[:min(k, len(winners))]
	for _, c := range received {
		if !c.Exhausted && (len(winners) < k || c.mayBeat(winners[k-1])) {
			refill = append(refill, c.Tablet)
		}
	}
	slices.Sort(refill)
	return winners, slices.Compact(refill)
}

// mayBeat reports whether the best row that the tablet may withhold ranks no
// worse than w.
func (c *Contribution) mayBeat(w Candidate) bool {
	return Compare(Candidate{Score: c.Bound, Tablet: c.Tablet}, w) <= 0
}

// RefillError reports a tablet that broke the refill protocol.
type RefillError struct {
	Tablet catalog.TabletID
	Reason string
}

func (e *RefillError) Error() string {
	return fmt.Sprintf("top-k refill of tablet %d %s", e.Tablet, e.Reason)
}

// Refill fetches the next batch of one tablet.
type Refill func(catalog.TabletID) (Contribution, error)

// ExactTopK merges the first batches of all tablets and refills until the top k
// are certain. Tablets are refilled in ascending order, so equal inputs lead to
// equal calls. A refill that brings neither rows nor a lower bound, raises the
// bound, or is for another tablet ends the query with a *RefillError; an error
// of refill itself is returned wrapped.
func ExactTopK(k int, first []Contribution, refill Refill) ([]Candidate, error) {
	received := slices.Clone(first)
	index := make(map[catalog.TabletID]int, len(received))
	for i, c := range received {
		if _, twice := index[c.Tablet]; twice {
			return nil, &RefillError{c.Tablet, "is impossible: it contributes twice"}
		}
		index[c.Tablet] = i
		received[i].Rows = slices.Clone(c.Rows)
	}
	for {
		winners, wanting := MergeTopK(received, k)
		if len(wanting) == 0 {
			return winners, nil
		}
		for _, tablet := range wanting {
			batch, err := refill(tablet)
			if err != nil {
				return nil, fmt.Errorf("refilling top-k of tablet %d: %w", tablet, err)
			}
			if err := received[index[tablet]].extend(batch); err != nil {
				return nil, err
			}
		}
	}
}

// extend adds the tablet's next batch.
func (c *Contribution) extend(next Contribution) error {
	switch {
	case next.Tablet != c.Tablet:
		return &RefillError{c.Tablet, fmt.Sprintf("was answered for tablet %d", next.Tablet)}
	case !next.Exhausted && next.Bound > c.Bound:
		return &RefillError{c.Tablet, "raised the bound of unseen scores"}
	case len(next.Rows) == 0 && !next.Exhausted && next.Bound == c.Bound:
		return &RefillError{c.Tablet, "made no progress"}
	}
	c.Rows = append(c.Rows, next.Rows...)
	c.Exhausted, c.Bound = next.Exhausted, next.Bound
	return nil
}
