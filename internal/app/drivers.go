package app

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"
)

// RouteDriverLogs sends what go-redis prints about its connections to log, at
// debug level: its errors reach the caller of each operation anyway. The driver
// has one logger for the process, so this is for a program to call, once.
func RouteDriverLogs(log *slog.Logger) { redis.SetLogger(driverLog{log}) }

type driverLog struct{ log *slog.Logger }

func (d driverLog) Printf(ctx context.Context, format string, args ...any) {
	if d.log.Enabled(ctx, slog.LevelDebug) {
		d.log.DebugContext(ctx, fmt.Sprintf(format, args...), "from", "go-redis")
	}
}
