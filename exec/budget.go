package exec

import (
	"fmt"
	"math"
	"sync/atomic"

	"skein/sqlstate"
)

// Budget bounds the memory that operators hold. Budgets form a hierarchy, for
// instance one per query below one per node: a reservation counts against
// every ancestor and succeeds only if all of them have room. A nil *Budget has
// no limit. All methods may be called by several goroutines at once.
type Budget struct {
	name   string
	limit  int64
	parent *Budget
	used   atomic.Int64
	peak   atomic.Int64
}

// NewBudget returns a budget of limit bytes below parent, which may be nil. A
// limit of 0 or less leaves the bounding to the ancestors. The name appears in
// errors, for instance "query" or "node".
func NewBudget(name string, limit int64, parent *Budget) *Budget {
	return &Budget{name: name, limit: limit, parent: parent}
}

// Reserve takes bytes out of the budget and of its ancestors, or out of none:
// it then returns a sqlstate.OutOfMemory error that names the operator and the
// budget that ran out.
func (b *Budget) Reserve(operator string, bytes int64) error {
	if bytes <= 0 {
		return nil
	}
	for at := b; at != nil; at = at.parent {
		if at.take(bytes) {
			continue
		}
		for undo := b; undo != at; undo = undo.parent {
			undo.used.Add(-bytes)
		}
		return at.exhausted(operator, bytes)
	}
	for at := b; at != nil; at = at.parent { // what was undone is no peak
		at.raisePeak(at.used.Load())
	}
	return nil
}

func (b *Budget) take(bytes int64) bool {
	for {
		used := b.used.Load()
		if b.limit > 0 && used+bytes > b.limit {
			return false
		}
		if b.used.CompareAndSwap(used, used+bytes) {
			return true
		}
	}
}

func (b *Budget) raisePeak(used int64) {
	for {
		peak := b.peak.Load()
		if used <= peak || b.peak.CompareAndSwap(peak, used) {
			return
		}
	}
}

// charge counts bytes against the budget and its ancestors whether or not they
// have room: for working memory that is small and bounded, and without which an
// operator could not go on to put rows aside.
func (b *Budget) charge(bytes int64) {
	for at := b; at != nil; at = at.parent {
		at.raisePeak(at.used.Add(bytes))
	}
}

// grantShare is the part of a budget, up to maxGrant bytes, that an account
// which makes room by spilling may hold even when others have taken everything.
const (
	grantShare = 64
	maxGrant   = 1 << 20
)

// grant is how much an operator that spills holds in any case.
func (b *Budget) grant() int64 {
	grant := int64(maxGrant)
	for at := b; at != nil; at = at.parent {
		if at.limit > 0 {
			grant = min(grant, at.limit/grantShare)
		}
	}
	return grant
}

func (b *Budget) exhausted(operator string, bytes int64) error {
	return sqlstate.New(sqlstate.OutOfMemory, "%s needs %s more memory, but the %s budget of %s has only %s left",
		operator, formatBytes(bytes), b.name, formatBytes(b.limit), formatBytes(max(0, b.limit-b.used.Load()))).
		WithHint("Raise the %s memory budget, or make the query keep fewer rows: filter earlier, select fewer columns, add a LIMIT.", b.name)
}

// Release gives back bytes that Reserve took.
func (b *Budget) Release(bytes int64) {
	if bytes <= 0 {
		return
	}
	for at := b; at != nil; at = at.parent {
		at.used.Add(-bytes)
	}
}

// Used is how many bytes are reserved at this moment.
func (b *Budget) Used() int64 {
	if b == nil {
		return 0
	}
	return b.used.Load()
}

// Peak is the most bytes that were ever reserved at once.
func (b *Budget) Peak() int64 {
	if b == nil {
		return 0
	}
	return b.peak.Load()
}

// Account opens one operator's share of the budget. The operator's name is
// for errors.
func (b *Budget) Account(operator string) *Account {
	return &Account{budget: b, operator: operator}
}

// workingAccount opens an account for memory that is small and bounded, such as
// write buffers: it counts against the budget but is never refused.
func (b *Budget) workingAccount(operator string) *Account {
	return &Account{budget: b, operator: operator, granted: math.MaxInt64}
}

// partialAccount opens the account of a partial aggregate, which makes room by
// emitting its groups.
func (b *Budget) partialAccount() *Account {
	a := b.Account("partial aggregation")
	a.granted = b.grant()
	return a
}

// Account remembers what one operator reserved so that it can give all of it
// back at once. It is used by one goroutine at a time.
type Account struct {
	budget   *Budget
	operator string
	held     int64
	granted  int64     // bytes that are never refused
	overflow *overflow // memory to go on with when the budget is exhausted, or nil
}

// Reserve takes bytes more; see Budget.Reserve.
func (a *Account) Reserve(bytes int64) error {
	if bytes <= 0 {
		return nil
	}
	if a.held+bytes <= a.granted {
		a.budget.charge(bytes)
	} else if err := a.budget.Reserve(a.operator, bytes); err != nil {
		return err
	}
	a.held += bytes
	return nil
}

// charge takes bytes more even when there is no room for them, so that the next
// reservation fails.
func (a *Account) charge(bytes int64) {
	if bytes > 0 {
		a.budget.charge(bytes)
		a.held += bytes
	}
}

// Release gives back bytes, at most those held.
func (a *Account) Release(bytes int64) {
	bytes = min(bytes, a.held)
	if bytes <= 0 {
		return
	}
	a.held -= bytes
	a.budget.Release(bytes)
}

// split moves bytes, at most those held, to an account of its own.
func (a *Account) split(bytes int64) *Account {
	bytes = min(bytes, a.held)
	a.held -= bytes
	return &Account{budget: a.budget, operator: a.operator, held: bytes, granted: a.granted}
}

// absorb takes over what another account of the same budget holds.
func (a *Account) absorb(other *Account) {
	a.held += other.held
	other.held = 0
}

// Held is how many bytes the account holds.
func (a *Account) Held() int64 { return a.held }

// Close gives everything back. The account may be used again afterwards.
// Memory that overflowed to files is unmapped: nothing may point to it.
func (a *Account) Close() {
	a.Release(a.held)
	a.overflow.close()
}

func formatBytes(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d bytes", n)
}
