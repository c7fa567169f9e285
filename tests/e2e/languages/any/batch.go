// After `go build`, `wasm-tools component embed` adds the world, which Go does not link.

package export_dispatcher_plugin_batch_handler

import (
	"runtime"
	"runtime/debug"

	wit "go.bytecodealliance.org/pkg/wit/types"

	types "wit_component/dispatcher_plugin_types"
)

// The garbage collector reads the clock, which traps while the host passes arguments. So it runs
// only where Handle calls it.
func init() { debug.SetGCPercent(-1) }

var (
	calls   int
	handled = wit.Ok[[]types.Failed, types.Failure]
)

func Handle(messages []types.Message) wit.Result[[]types.Failed, types.Failure] {
	if calls++; calls%100 == 0 {
		runtime.GC()
	}
	failed := []types.Failed{}
	for _, message := range messages {
		if message.Body.Text() != "done" {
			failed = append(failed, types.Failed{
				Id:      message.Id,
				Failure: types.MakeFailureReject("not wanted"),
			})
		}
	}
	return handled(failed)
}
