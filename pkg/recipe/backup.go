package recipe

// Level at which an action tells a log. Velero counts Warn lines of a backup as warnings and Error lines as errors, which make
// it PartiallyFailed (velero pkg/util/logging/log_counter_hook.go); in a restore lines do not count.
type Level string

// The levels.
const (
	LevelDebug Level = "debug"
	LevelInfo  Level = "info"
	LevelWarn  Level = "warn"
	LevelError Level = "error"
)
