package consensus

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/lni/dragonboat/v4/logger"
)

// raftLog is where the Raft library's messages go. The library keeps one
// logger factory per process and panics when it is set twice, so this is the
// one piece of process-wide state of the package: the first host installs the
// bridge, and each later host redirects it to its own logger.
var raftLog struct {
	install sync.Once
	target  atomic.Pointer[slog.Logger]
}

// bridgeRaftLog sends the library's messages of level Warn and above to log.
func bridgeRaftLog(log *slog.Logger) {
	raftLog.target.Store(log)
	raftLog.install.Do(func() {
		logger.SetLoggerFactory(func(pkg string) logger.ILogger { return raftLogger{pkg: pkg} })
	})
}

// raftLogger implements the library's logger for one of its packages.
type raftLogger struct {
	pkg string
}

// SetLevel does nothing: the slog handler decides what is shown.
func (raftLogger) SetLevel(logger.LogLevel) {}

// The library is chatty: what it calls a warning in its core is every vote of
// every election, in its configuration advice, and in its transport one line per
// attempt to reach a node that is down. Those count as less here.

func (l raftLogger) Debugf(string, ...any) {}

func (l raftLogger) Infof(format string, args ...any) { l.log(slog.LevelDebug, format, args) }

func (l raftLogger) Warningf(format string, args ...any) {
	level := slog.LevelWarn
	switch {
	case l.pkg == "config", l.pkg == "raft", l.pkg == "transport":
		level = slog.LevelDebug
	case strings.Contains(format, "LocalTick"): // ticks were late: the disk or the CPU is busy
		level = slog.LevelDebug
	}
	l.log(level, format, args)
}

func (l raftLogger) Errorf(format string, args ...any) {
	level := slog.LevelError
	if l.pkg == "transport" {
		level = slog.LevelWarn
	}
	l.log(level, format, args)
}

// Panicf must not return: the library calls it when going on would damage data.
func (l raftLogger) Panicf(format string, args ...any) {
	l.log(slog.LevelError, format, args)
	panic(fmt.Sprintf("raft/%s: "+format, append([]any{l.pkg}, args...)...))
}

func (l raftLogger) log(level slog.Level, format string, args []any) {
	target := raftLog.target.Load()
	if target == nil || !target.Enabled(context.Background(), level) {
		return
	}
	target.Log(context.Background(), level, fmt.Sprintf(format, args...), "component", "raft/"+l.pkg)
}
