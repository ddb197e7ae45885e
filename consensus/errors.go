package consensus

import (
	"context"
	"errors"

	"skein/sqlstate"
)

// What a caller may branch on with errors.Is. SQLState turns them into errors
// for users.
var (
	// ErrTabletNotHere: this node hosts no replica of the tablet. Refresh the
	// metadata and ask another node.
	ErrTabletNotHere = errors.New("tablet has no replica on this node")
	// ErrTabletReplaced: the tablet was split or merged, and the call has had no
	// effect. Refresh the metadata and ask the tablets that took its place.
	ErrTabletReplaced = errors.New("other tablets have taken the tablet's place")
	// ErrOtherTablet: the tablet runs here with other bounds or for another table than
	// it was to be started with. Ids are never reused, so one of the two is wrong.
	ErrOtherTablet = errors.New("the tablet runs here with another description")
	// ErrNotReady: the replica or the node is starting or stopping. Retry soon.
	ErrNotReady = errors.New("not ready")
	// ErrUnavailable: no quorum answered in time. A proposal that ends so may or
	// may not take effect later; repeating it is safe.
	ErrUnavailable = errors.New("no quorum of replicas answered in time")
	// ErrReplicaFailed: the local replica stopped itself on an I/O error or on
	// damaged data, and stays stopped until the process restarts.
	ErrReplicaFailed = errors.New("replica stopped after a failure")
	// ErrReplicaDamaged: the local replica has data that fails its checksum. It is
	// being rebuilt from the others; ask another node.
	ErrReplicaDamaged = errors.New("replica is damaged and being rebuilt")
	// ErrDirectoryInUse: another process holds the data directory.
	ErrDirectoryInUse = errors.New("directory is in use by another process")
	// ErrForeignDirectory: the data directory does not belong to this node.
	ErrForeignDirectory = errors.New("directory does not belong to this node")
	// ErrNotProvisioned: the data directory is that of no node yet. A cluster's
	// first nodes are provisioned when it is founded, others when they join.
	ErrNotProvisioned = errors.New("directory is not provisioned for a node")
	// ErrNodeRefused: the cluster does not take this node, and never will: it was
	// removed, or its directory is not the one that the cluster knows.
	ErrNodeRefused = errors.New("the cluster refuses this node")
	// ErrMembership: the configured members differ from those that the group was
	// created with.
	ErrMembership = errors.New("configured members differ from the recorded ones")
)

// SQLState maps an error of this package to what a user should see. Errors that
// carry a SQLSTATE already are returned as they are; nil maps to nil.
func SQLState(err error) *sqlstate.Error {
	if err == nil {
		return nil
	}
	var known *sqlstate.Error
	switch {
	case errors.As(err, &known):
		return known
	case errors.Is(err, ErrTabletNotHere):
		return sqlstate.New(sqlstate.ConnectionFailure, "%w", err).WithHint("Refresh the table's placement and retry.")
	case errors.Is(err, ErrNotTransferred):
		return sqlstate.New(sqlstate.ObjectNotInState, "%w", err).WithHint("See skein.replicas for whether that replica runs and how far it is behind, and retry.")
	case errors.Is(err, ErrTabletReplaced):
		return sqlstate.New(sqlstate.SerializationFailure, "%w", err).WithHint("Run the statement again.")
	case errors.Is(err, ErrNotReady):
		return sqlstate.New(sqlstate.CannotConnectNow, "%w", err).WithHint("Retry in a moment.")
	case errors.Is(err, ErrUnavailable):
		return sqlstate.New(sqlstate.ConnectionFailure, "%w", err).WithHint("Check that a majority of the workers is running.")
	case errors.Is(err, ErrReplicaFailed):
		return sqlstate.New(sqlstate.IOError, "%w", err).WithHint("See the worker's log for the cause, then restart it.")
	case errors.Is(err, ErrClockAhead):
		return sqlstate.New(sqlstate.InternalError, "%w", err).WithHint("Synchronise the clocks of the cluster's machines.")
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return sqlstate.New(sqlstate.QueryCanceled, "%w", err)
	}
	return sqlstate.New(sqlstate.InternalError, "%w", err)
}
