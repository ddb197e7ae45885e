package skeinproc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Cluster is some workers and a gateway, each a process of its own.
type Cluster struct {
	binary  string
	spare   [][]string    // arguments of workers that were not started
	Address string        // host:port of Flight SQL
	Startup time.Duration // until it answered
	data    string
	procs   []*exec.Cmd
	metrics []string // where each process tells its metrics
}

// StartCluster runs n workers with their data below a directory, and a gateway,
// and waits until it answers. Further flags go to every process.
func StartCluster(ctx context.Context, binary, data string, n int, flags ...string) (*Cluster, error) {
	return StartClusterWithSpare(ctx, binary, data, n, 0, flags...)
}

// StartClusterWithSpare is StartCluster with further workers that are members and
// not started: StartSpare starts one.
func StartClusterWithSpare(ctx context.Context, binary, data string, n, spare int, flags ...string) (c *Cluster, err error) {
	if err := os.MkdirAll(data, 0o755); err != nil {
		return nil, err
	}
	all := n + spare
	ports, err := freePorts(3*all + 2)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	c = &Cluster{Address: ports[2*all], data: data, metrics: ports[2*all+1 : 2*all+2+n], binary: binary}
	further := ports[2*all+2+n:]
	var members []string
	for i := range all {
		members = append(members, fmt.Sprintf("%d=%s/%s", i+1, ports[2*i], ports[2*i+1]))
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()
	for i := range all {
		id := fmt.Sprint(i + 1)
		arguments := append([]string{"worker", "--node-id", id, "--data", filepath.Join(data, id),
			"--members", strings.Join(members, ","), "--init-if-empty", "--log-level", "warn"}, flags...)
		if i >= n {
			c.spare = append(c.spare, append(arguments, "--http", further[i-n]))
			continue
		}
		if err := c.start(binary, append(arguments, "--http", c.metrics[i])...); err != nil {
			return nil, err
		}
	}
	if err := c.start(binary, append([]string{"gateway", "--flight", c.Address, "--http", c.metrics[n], "--workers", ports[1],
		"--log-level", "warn"}, flags...)...); err != nil {
		return nil, err
	}
	err = c.await(ctx)
	c.Startup = time.Since(began)
	return c, err
}

// StartSpare starts the next of the workers that were left out. It does not wait.
func (c *Cluster) StartSpare() error {
	if len(c.spare) == 0 {
		return errors.New("there is no worker left to start")
	}
	arguments := c.spare[0]
	c.spare = c.spare[1:]
	return c.start(c.binary, arguments...)
}

func (c *Cluster) start(binary string, args ...string) error {
	cmd := exec.Command(binary, args...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s %s: %w", binary, args[0], err)
	}
	c.procs = append(c.procs, cmd)
	return nil
}

// await asks the gateway for something that takes all workers until it answers.
func (c *Cluster) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	client, err := Dial(c.Address)
	if err != nil {
		return err
	}
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for err = errors.New("not asked"); err != nil; {
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("the cluster does not answer: %w", err), client.Close())
		case <-ticker.C:
			err = client.Exec(ctx, fmt.Sprintf("CREATE TABLE ready (id BIGINT PRIMARY KEY) WITH (replicas = %d)", len(c.procs)-1))
		}
	}
	return errors.Join(client.Exec(ctx, "DROP TABLE ready"), client.Close())
}

// PeakMemory is the sum of what each process had resident at its peak, in bytes.
func (c *Cluster) PeakMemory() int64 {
	var total int64
	for _, cmd := range c.procs {
		total += procStatus(cmd.Process.Pid, "VmHWM:")
	}
	return total
}

// Usage is what the processes of a cluster use together at one moment.
type Usage struct {
	Goroutines int64
	Memory     int64 // resident bytes
}

// Usage asks all processes what they use.
func (c *Cluster) Usage(ctx context.Context) (Usage, error) {
	var u Usage
	for i, cmd := range c.procs {
		n, err := metric(ctx, c.metrics[i], "go_goroutines")
		if err != nil {
			return u, fmt.Errorf("asking process %d for its metrics: %w", i+1, err)
		}
		u.Goroutines += n
		u.Memory += procStatus(cmd.Process.Pid, "VmRSS:")
	}
	return u, nil
}

// Fragments is how many fragments of queries all workers hold, those that are
// being cancelled included.
func (c *Cluster) Fragments(ctx context.Context) (int64, error) {
	var total int64
	for i, address := range c.metrics[:len(c.metrics)-1] {
		n, err := metric(ctx, address, "skein_worker_fragments")
		if err != nil {
			return 0, fmt.Errorf("asking worker %d for its metrics: %w", i+1, err)
		}
		total += n
	}
	return total, nil
}

// ProcessorTime is what all workers have used so far, 0 where the operating system
// does not tell. It counts in steps of some milliseconds.
func (c *Cluster) ProcessorTime() time.Duration {
	var total time.Duration
	for _, cmd := range c.procs[:len(c.procs)-1] {
		total += processorTime(cmd.Process.Pid)
	}
	return total
}

// metric asks a process for one of its metrics, which has no labels.
func metric(ctx context.Context, address, name string) (int64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }() // only read
	body, err := io.ReadAll(response.Body)       // to its end, so that the connection is used again
	if err != nil {
		return 0, err
	}
	for line := range strings.SplitSeq(string(body), "\n") {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strconv.ParseInt(value, 10, 64)
		}
	}
	return 0, fmt.Errorf("no %s among the metrics", name)
}

// DiskBytes is the space that the data directories' files take on disk.
func (c *Cluster) DiskBytes() (int64, error) { return diskBytes(c.data) }

// Stop ends all processes, the gateway first.
func (c *Cluster) Stop() error {
	var errs []error
	for i := len(c.procs) - 1; i >= 0; i-- {
		if err := c.procs[i].Process.Signal(syscall.SIGTERM); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, c.procs[i].Wait())
	}
	return errors.Join(errs...)
}

// freePorts returns addresses that were free a moment ago.
func freePorts(n int) ([]string, error) {
	var out []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }() // all at once, so that they differ
		out = append(out, l.Addr().String())
	}
	return out, nil
}
