package main

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"skein/cmd/skein/internal/client"
)

const (
	soakClients     = 20
	soakTime        = 3 * time.Second // of each of two rounds
	spareGoroutines = 20              // what comes and goes by itself
)

// Many clients read, write and cancel at once. None gets an error or another row,
// and what the first round left behind, of goroutines and operators' memory, is not more
// after the second one. `make bench-soak` is the long form, on several workers.
func TestNothingStaysBehindManyClients(t *testing.T) {
	s := startDev(t, t.TempDir())
	cancelTables(t, dial(t, s.flight))
	if _, err := dial(t, s.flight).Exec(testContext(t), `CREATE TABLE c (client BIGINT NOT NULL, id BIGINT NOT NULL, PRIMARY KEY (client, id)) PARTITION BY HASH (client) WITH (tablets = 3)`); err != nil {
		t.Fatal(err)
	}
	var left int64
	for round := range 2 {
		end := time.Now().Add(soakTime)
		var all sync.WaitGroup
		for i := range soakClients {
			all.Go(func() {
				if err := soakClient(testContext(t), s.flight, int64(round*soakClients+i), end); err != nil {
					t.Errorf("client %d: %v", i, err)
				}
			})
		}
		all.Wait()
		most := left + spareGoroutines
		eventually(t, "nothing is left", func(ctx context.Context) error {
			n, err := devMetric(ctx, s.http, "go_goroutines")
			if err != nil {
				return err
			}
			fragments, err := devMetric(ctx, s.http, "skein_worker_fragments")
			if err != nil || fragments > 0 {
				return fmt.Errorf("%d fragments, %v", fragments, err)
			}
			if round > 0 && n > most {
				return fmt.Errorf("there are %d goroutines, and %d after the first round", n, left)
			}
			left = n
			return nil
		})
	}
}

// soakClient works until a moment and then looks for all it has written.
func soakClient(ctx context.Context, flight string, id int64, end time.Time) error {
	c, err := client.Dial(flight)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	random := rand.New(rand.NewPCG(5, uint64(id)))
	inserted := 0
	for n := 0; time.Now().Before(end); n++ {
		switch random.IntN(5) {
		case 0:
			if _, err := c.Exec(ctx, fmt.Sprintf("INSERT INTO c VALUES (%d, %d), (%d, %d)", id, 2*n, id, 2*n+1)); err != nil {
				return fmt.Errorf("inserting: %w", err)
			}
			inserted += 2
		case 1:
			short, cancel := context.WithTimeout(ctx, time.Duration(random.IntN(100))*time.Millisecond)
			_, err := query(short, c, shapes["exchange between workers"])
			cancel()
			if err == nil {
				return fmt.Errorf("a query that was cancelled gave an answer")
			}
		case 2:
			if rows, err := query(ctx, c, "SELECT v FROM a WHERE id = 77"); err != nil || len(rows) != 1 || rows[0] != "value 77" {
				return fmt.Errorf("reading a row: %v, error %v", rows, err)
			}
		case 3:
			if rows, err := query(ctx, c, "SELECT x.g, count(*) FROM a x JOIN b y ON x.id = y.id WHERE x.g < 2 GROUP BY x.g ORDER BY x.g"); err != nil || strings.Join(rows, " ") != "0,4000 1,4000" {
				return fmt.Errorf("joining: %v, error %v", rows, err)
			}
		case 4:
			if rows, err := query(ctx, c, "SELECT id FROM b ORDER BY id DESC LIMIT 2 OFFSET 1"); err != nil || strings.Join(rows, " ") != "159998 159997" {
				return fmt.Errorf("taking the greatest: %v, error %v", rows, err)
			}
		}
	}
	rows, err := query(ctx, c, fmt.Sprintf("SELECT count(*) FROM c WHERE client = %d", id))
	if err != nil || len(rows) != 1 || rows[0] != strconv.Itoa(inserted) {
		return fmt.Errorf("%d rows were written, %v are there, error %v", inserted, rows, err)
	}
	return nil
}

// devMetric asks a process for a metric without labels.
func devMetric(ctx context.Context, address, name string) (int64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseInt(value, 10, 64)
		}
	}
	return 0, fmt.Errorf("no %s among the metrics", name)
}
