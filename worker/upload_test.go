package worker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/apache/arrow-go/v18/arrow/flight"

	"skein/catalog"
	"skein/flightproto"
	"skein/flightproto/pb"
	"skein/internal/faultproxy"
)

const (
	uploadBatches = 3
	uploadRows    = 20_000 // of each batch: a message of its own
)

// upload sends rows in several messages, the first with the schema and the last
// with the end.
func (n *node) upload(ctx context.Context, table *catalog.Table, txn string, autoCommit bool, from int) (*pb.WriteResult, error) {
	w, err := n.conn.Write(ctx, &pb.WriteHeader{
		TransactionId: txn, TableId: uint64(table.ID), TabletId: uint64(table.Tablets[0].ID), AutoCommit: autoCommit,
	}, table.ArrowSchema())
	if err != nil {
		return nil, err
	}
	defer w.Abort()
	for i := range uploadBatches {
		if err := w.Send(rows(n.t, from+i*uploadRows, uploadRows)); err != nil {
			return nil, err
		}
	}
	return w.Finish()
}

// puts matches the stream of one transaction's rows.
func puts(txn string) func(string, []byte) bool {
	return func(method string, request []byte) bool {
		first, header := &flight.FlightData{}, &pb.WriteHeader{}
		return method == "DoPut" && proto.Unmarshal(request, first) == nil &&
			flightproto.Decode(first.GetFlightDescriptor().GetCmd(), header, flightproto.MaxMessageBytes) == nil &&
			header.GetTransactionId() == txn
	}
}

// uploadFaults spoil each message of an upload, and its answer.
func uploadFaults() []faultCase {
	var list []faultCase
	for n := range uploadBatches + 2 {
		for _, kind := range []faultproxy.Kind{faultproxy.Drop, faultproxy.Truncate, faultproxy.Duplicate, faultproxy.Reset, faultproxy.Finish} {
			// The first message twice is the call twice: one of them has no rows.
			list = append(list, faultCase{faultproxy.Fault{Kind: kind, Place: faultproxy.Request, Message: n}, n > 0 || kind != faultproxy.Duplicate})
		}
		list = append(list, faultCase{faultproxy.Fault{Kind: faultproxy.Delay, Place: faultproxy.Request, Message: n, For: 5 * time.Millisecond}, false})
	}
	for _, kind := range []faultproxy.Kind{faultproxy.Drop, faultproxy.Truncate, faultproxy.Duplicate, faultproxy.Reset, faultproxy.Finish} {
		list = append(list, faultCase{faultproxy.Fault{Kind: kind, Place: faultproxy.Response}, true})
	}
	return list
}

// An upload of which anything is lost, repeated or cut is refused, whether its
// stream seems to end well or not, and leaves nothing; where only the answer is
// spoiled all of it is there.
func TestUploadsComeWholeOrNotAtAll(t *testing.T) {
	overNetworks(t, func(t *testing.T, over network) {
		c := newClusterOn(t, over, true, 1, nil)
		n := c.nodes[0]
		for _, autoCommit := range []bool{true, false} {
			for _, f := range uploadFaults() {
				name := fmt.Sprintf("commits-%t-%s-%s-%d", autoCommit, f.fault.Kind, f.fault.Place, f.fault.Message)
				t.Run(name, func(t *testing.T) { checkUpload(t, c, n, name, autoCommit, f) })
			}
		}
	})
}

func checkUpload(t *testing.T, c *cluster, n *node, txn string, autoCommit bool, f faultCase) {
	table := c.createTable(txn, nil, 0)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	unanswered := f.fault.Kind == faultproxy.Drop && f.fault.Message == 0 && f.fault.Place == faultproxy.Request
	f.fault.Match = func(method string, request []byte) bool {
		match := puts(txn)(method, request)
		if match && unanswered {
			time.AfterFunc(200*time.Millisecond, cancel) // after which a client gives up
		}
		return match
	}
	before := n.proxy.Fired()
	n.proxy.Arm(&f.fault)
	result, err := n.upload(ctx, table, txn, autoCommit, 0)
	n.proxy.Arm(nil)
	if n.proxy.Fired() != before+1 {
		t.Fatal("the fault did not happen")
	}
	if (err != nil) != f.fails {
		t.Fatalf("result %v, error %v", result, err)
	}
	if err == nil && result.GetRows() != uploadBatches*uploadRows {
		t.Errorf("%d rows were taken", result.GetRows())
	}
	eventually(t, "the stream ends", func() bool {
		status, err := n.conn.Status(t.Context(), nil)
		return err == nil && status.Writes == 0
	})
	ids, err := c.ids(table)
	if err != nil {
		t.Fatal(err)
	}
	committed := autoCommit && (!f.fails || f.fault.Place == faultproxy.Response)
	if want := map[bool]int{true: uploadBatches * uploadRows}[committed]; len(ids) != want {
		t.Errorf("%d rows are visible instead of %d", len(ids), want)
	}
	if staged := n.tablet(table.Tablets[0].ID).Staged(); f.fails && f.fault.Place == faultproxy.Request && len(staged) > 0 {
		t.Errorf("left behind: %v", staged)
	}
}
