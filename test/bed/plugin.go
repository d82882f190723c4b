package bed

import (
	"context"
	"fmt"
	"path/filepath"
)

// AddPlugin installs the binary of a plugin and restarts the Velero server, as `velero plugin add` does. A restore that
// was InProgress is Failed afterwards.
func (b *Bed) AddPlugin(ctx context.Context, plugin string) error {
	b.velero.change.Lock()
	defer b.velero.change.Unlock()
	if err := copyPlugin(b.pluginDir(), plugin); err != nil {
		return fmt.Errorf("install the plugin %s: %w", filepath.Base(plugin), err)
	}
	if err := b.stopVelero(ctx, stopGrace); err != nil {
		return err
	}
	return b.startVelero(ctx)
}
