// Checks that the body is a well-formed order: `{"id": "o-1", "amount": 250, "ready": true}`.
// A malformed order is rejected, one that is not ready yet is tried again.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	_ "handlers/order-check/bindings/wit_exports"
	"handlers/order-check/plugin"
)

// How long an order may take to become ready, where it does not say itself.
const patience = 2 * time.Second

type order struct {
	ID        *string `json:"id"`
	Amount    *uint64 `json:"amount"`
	Ready     *bool   `json:"ready"`
	ReadyInMs *uint64 `json:"ready_in_ms"`
}

// What a member of an order must be.
var wanted = map[string]string{
	"id":     "`id`: wanted a string",
	"amount": "`amount`: wanted a whole number of cents",
	"ready":  "`ready`: wanted true or false",
}

// nil is done; what plugin.Reject and its sisters make is what they say; any other error goes to
// the log, and the message comes again by the route's policy.
func handle(message plugin.Message) error {
	var found order
	err := json.Unmarshal([]byte(message.Body), &found)
	var mismatch *json.UnmarshalTypeError
	if errors.As(err, &mismatch) && wanted[mismatch.Field] != "" {
		return plugin.Reject(wanted[mismatch.Field])
	} else if err != nil {
		return plugin.Reject(err.Error())
	}
	switch {
	case found.ID == nil:
		return plugin.Reject(wanted["id"])
	case found.Amount == nil:
		return plugin.Reject(wanted["amount"])
	case *found.Amount == 0:
		return plugin.Reject("`amount`: wanted more than nothing")
	case found.Ready != nil && !*found.Ready:
		after := patience
		if found.ReadyInMs != nil {
			after = time.Duration(*found.ReadyInMs) * time.Millisecond
		}
		return plugin.RetryAfter(after)
	}
	fmt.Printf("order %s: %d cents\n", *found.ID, *found.Amount)
	return nil
}

func init() { plugin.Handle(handle) }

// Never called: a plugin has no beginning and no end of its own.
func main() {}
