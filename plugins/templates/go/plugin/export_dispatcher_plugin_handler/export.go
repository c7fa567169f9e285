// Package export_dispatcher_plugin_handler is what the bindings call: its name is theirs.
package export_dispatcher_plugin_handler

import (
	types "handlers/order-check/bindings/dispatcher_plugin_types"
	"handlers/order-check/plugin"
	"handlers/order-check/support/runtime"
	wit "handlers/order-check/support/types"
)

// Handle is the export `handle` of `dispatcher:plugin/handler`.
func Handle(message types.Message) wit.Result[wit.Unit, types.Failure] {
	defer runtime.Collect()
	return plugin.Answer(message)
}
