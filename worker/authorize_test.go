package worker_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"skein/catalog"
	"skein/flightproto"
	"skein/flightproto/pb"
	"skein/planner"
	"skein/sqlstate"
	"skein/worker"
)

// authority has one key, whose secret is a number.
func authority(secret byte) *flightproto.Authority {
	return flightproto.NewAuthority(func() []catalog.SigningKey {
		return []catalog.SigningKey{{ID: 1, Secret: bytes.Repeat([]byte{secret}, 32)}}
	}, "", time.Now)
}

func sign(t *testing.T, a *flightproto.Authority, subject string, life time.Duration) []byte {
	t.Helper()
	envelope, err := a.Sign(flightproto.Claims{User: "ann", Subject: subject, Expires: time.Now().Add(life)})
	if err != nil {
		t.Fatal(err)
	}
	return envelope
}

// Every way to a worker's data or to a query asks for an envelope, and refuses
// those that are no good.
func TestEveryRequestIsAuthorized(t *testing.T) {
	c := newCluster(t, 1, func(cfg *worker.Config) { cfg.Authority = authority(1) })
	n := c.nodes[0]
	table := c.createTable("t", nil, 0)
	tablet := uint64(table.Tablets[0].ID)
	p := newPlan()
	x := p.exchange(p.scan(n, table, 0, nil), coordinator, merge(table))
	ctx := t.Context()
	pull := func(ticket *pb.Ticket) error {
		s, err := n.conn.Fetch(ctx, ticket, x.Schema)
		if err != nil {
			return err
		}
		defer s.Close()
		_, err = s.Next(ctx)
		return err
	}
	request := p.requests(t, n.clock.Now())[n]
	requests := map[string]struct {
		subject string
		send    func(envelope []byte) error
	}{
		"start": {p.id, func(e []byte) error {
			request.Authorization = e
			_, err := n.conn.StartFragments(ctx, request)
			return err
		}},
		"ticket": {p.id, func(e []byte) error {
			return pull(&pb.Ticket{QueryId: p.id, Fragment: uint32(x.Producer), Exchange: uint32(x.ID), Authorization: e})
		}},
		"start with a ticket": {p.id, func(e []byte) error {
			request.Authorization = e
			return pull(&pb.Ticket{QueryId: p.id, Fragment: uint32(x.Producer), Exchange: uint32(x.ID), Start: request})
		}},
		"cancel": {p.id, func(e []byte) error { _, err := n.conn.Cancel(ctx, p.id, "", e); return err }},
		"report": {p.id, func(e []byte) error { _, err := n.conn.Report(ctx, p.id, e); return err }},
		"status": {flightproto.SubjectStatus, func(e []byte) error { _, err := n.conn.Status(ctx, e); return err }},
		"meta command": {flightproto.SubjectMeta, func(e []byte) error {
			_, err := n.conn.Meta(ctx, "drop_table", []byte(`{}`), e)
			return err
		}},
		"transaction step": {"txn", func(e []byte) error {
			_, err := n.conn.Transact(ctx, &pb.TransactRequest{
				Step: pb.TransactRequest_TRUNCATE, TransactionId: "txn", TabletId: tablet, CommitTimestamp: 1, Authorization: e,
			})
			return err
		}},
		"write": {"txn", func(e []byte) error {
			w, err := n.conn.Write(ctx, &pb.WriteHeader{
				TransactionId: "txn", TableId: uint64(table.ID), TabletId: tablet, AutoCommit: true, Authorization: e,
			}, table.ArrowSchema())
			if err != nil {
				return err
			}
			_, err = w.Finish()
			return err
		}},
	}
	for name, r := range requests {
		// All that a client gets is the pull of one exchange.
		clients, err := authority(1).Sign(flightproto.Claims{
			User: "ann", Subject: r.subject, Expires: time.Now().Add(time.Hour), Pull: fmt.Sprintf("%d/%d", x.Producer, x.ID),
		})
		if err != nil {
			t.Fatal(err)
		}
		for kind, test := range map[string]struct {
			envelope []byte
			code     sqlstate.Code
		}{
			"no envelope": {nil, sqlstate.InvalidAuthorization},
			"forged":      {sign(t, authority(2), r.subject, time.Hour), sqlstate.InvalidAuthorization},
			"expired":     {sign(t, authority(1), r.subject, -time.Hour), sqlstate.InsufficientPrivilege},
			"another's":   {sign(t, authority(1), "another", time.Hour), sqlstate.InsufficientPrivilege},
			"a client's":  {clients, sqlstate.InsufficientPrivilege},
		} {
			if err := r.send(test.envelope); sqlstate.CodeOf(err) != test.code {
				t.Errorf("%s with %s: %v, want %s", name, kind, err, test.code)
			}
		}
	}
	status, err := n.conn.Status(ctx, sign(t, authority(1), flightproto.SubjectStatus, time.Hour))
	if err != nil || status.Fragments != 0 || status.Tablets[0].Rows != 0 {
		t.Fatalf("refused requests left %+v (%v)", status, err)
	}
	for _, name := range []string{"start", "ticket", "write"} {
		r := requests[name]
		if err := r.send(sign(t, authority(1), r.subject, time.Hour)); err != nil {
			t.Errorf("%s with a good envelope: %v", name, err)
		}
	}
}

// A worker that pulls from another passes the query's envelope and the
// generation of the producer's tablet on; it signs what it asks for itself.
func TestWorkersShowEnvelopesToEachOther(t *testing.T) {
	c := newCluster(t, 2, func(cfg *worker.Config) { cfg.Authority = authority(1) })
	table := c.createTable("t", nil, 0)
	header := &pb.WriteHeader{TransactionId: "w", AutoCommit: true, Authorization: sign(t, authority(1), "w", time.Hour)}
	if _, err := c.nodes[0].change(table, header, table.ArrowSchema(), rows(t, 0, 1000)); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		generation uint64
		reason     flightproto.Reason
	}{"the generation": {table.Tablets[0].Generation, ""}, "another generation": {table.Tablets[0].Generation + 1, flightproto.StaleMetadata}} {
		p := newPlan()
		inner := p.exchange(p.scan(c.nodes[0], table, 0, nil), 1, merge(table))
		relay := p.fragment(c.nodes[1], table.Tablets[0].ID, &planner.ExchangeSource{Exchange: inner.ID, Schema: table.ArrowSchema()})
		outer := p.exchange(relay, coordinator, merge(table))
		envelope := sign(t, authority(1), p.id, time.Hour)
		for n, request := range p.requests(t, c.nodes[0].clock.Now()) {
			request.Authorization = envelope
			for _, f := range request.Fragments {
				if f.Id == uint32(inner.Producer) {
					f.TabletGeneration = table.Tablets[0].Generation
				}
			}
			request.Exchanges[inner.ID].ProducerGeneration = test.generation
			if _, err := n.conn.StartFragments(t.Context(), request); err != nil {
				t.Fatal(err)
			}
		}
		ticket := p.ticket(outer)
		ticket.Authorization = envelope
		s, err := c.nodes[1].conn.Fetch(t.Context(), ticket, outer.Schema)
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		for {
			b, nextErr := s.Next(t.Context())
			if err = nextErr; err != nil || b == nil {
				break
			}
			got += b.Rows()
		}
		s.Close()
		if flightproto.ReasonOf(err) != test.reason || (test.reason == "" && (err != nil || got != 1000)) {
			t.Errorf("%s: %d rows, %v", name, got, err)
		}
		for _, n := range c.nodes {
			if _, err := n.conn.Cancel(t.Context(), p.id, "over", envelope); err != nil {
				t.Error(err)
			}
		}
	}
}

// In a cluster with a secret not even the metadata, which holds the keys, is told
// to those who do not know it.
func TestSecretsCloseTheMetadata(t *testing.T) {
	const secret = "correct horse battery staple"
	none := func() []catalog.SigningKey { return nil }
	c := newCluster(t, 1, func(cfg *worker.Config) { cfg.Authority = flightproto.NewAuthority(none, secret, time.Now) })
	n := c.nodes[0]
	if _, err := n.conn.Meta(t.Context(), "snapshot", []byte(`{}`), nil); sqlstate.CodeOf(err) != sqlstate.InvalidAuthorization {
		t.Errorf("without the secret: %v", err)
	}
	envelope, err := flightproto.NewAuthority(none, secret, time.Now).SignMeta("gateway")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.conn.Meta(t.Context(), "snapshot", []byte(`{}`), envelope); err != nil {
		t.Errorf("with the secret: %v", err)
	}
	open := newCluster(t, 1, func(cfg *worker.Config) { cfg.Authority = authority(1) })
	if _, err := open.nodes[0].conn.Meta(t.Context(), "snapshot", []byte(`{}`), nil); err != nil {
		t.Errorf("without any secret: %v", err)
	}
}
