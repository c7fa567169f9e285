// Package export_dispatcher_plugin_handler is what the bindings call: its name is theirs.
package export_dispatcher_plugin_handler

import (
	types "order-check/bindings/dispatcher_plugin_types"
	"order-check/plugin"
	wit "order-check/support/types"
)

// Handle is the export `handle` of `dispatcher:plugin/handler`.
func Handle(message types.Message) wit.Result[wit.Unit, types.Failure] {
	return plugin.Answer(message)
}
