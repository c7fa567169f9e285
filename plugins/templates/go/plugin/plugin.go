// Package plugin is what a handler needs of the contract: the message, and errors that say what
// becomes of it. Knows nothing of how calls get in and out.
package plugin

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	types "handlers/order-check/bindings/dispatcher_plugin_types"
	wit "handlers/order-check/support/types"
)

// Message is one delivery of one message.
type Message struct {
	types.Message
	// Body is the payload, whether it is text or not.
	Body string
}

func messageOf(wire types.Message) Message {
	if wire.Body.Tag() == types.BodyText {
		return Message{wire, wire.Body.Text()}
	}
	return Message{wire, string(wire.Body.Bytes())}
}

// Attribute is one attribute of the sender's.
type Attribute = types.Attribute

// Failure is an error of the contract.
type Failure struct {
	wire types.Failure
	text string
}

// Error tells a person.
func (failure *Failure) Error() string { return failure.text }

// Retry asks for the message again, as the route's policy says.
func Retry() error { return retry(wit.None[uint64](), wit.None[string](), "to be tried again") }

// RetryAfter asks for it again after this time.
func RetryAfter(after time.Duration) error {
	return retry(milliseconds(after), wit.None[string](), fmt.Sprintf("to be tried again after %s", after))
}

// RetryBecause asks for it again after this time, or by the route's policy if it is nothing, and says
// why, for the log and the dead letter.
func RetryBecause(after time.Duration, why string) error {
	wait := wit.None[uint64]()
	if after > 0 {
		wait = milliseconds(after)
	}
	return retry(wait, wit.Some(why), why)
}

func retry(after wit.Option[uint64], why wit.Option[string], text string) error {
	return &Failure{types.MakeFailureRetry(types.Retry{After: after, Reason: why}), text}
}

// Reject says that it must never come again: it goes to the dead-letter queue with this reason.
func Reject(why string) error {
	return &Failure{types.MakeFailureReject(why), why}
}

// Busy says that nothing was done, since something is busy: the host keeps the lease and tries
// again, after this time at least if it is more than nothing.
func Busy(after time.Duration, why string) error {
	wait := wit.None[uint64]()
	if after > 0 {
		wait = milliseconds(after)
	}
	return &Failure{types.MakeFailureBusy(types.Busy{After: wait, Reason: why}), why}
}

// Closed says that nothing was done, and that no message will fare better until somebody acts.
func Closed(why string) error {
	return &Failure{types.MakeFailureClosed(why), why}
}

func milliseconds(after time.Duration) wit.Option[uint64] {
	return wit.Some(uint64(max(after, 0).Milliseconds()))
}

var handler func(Message) error

// Handle makes this function the plugin's handler. To be called once, by an `init`.
func Handle(function func(Message) error) {
	if handler != nil {
		panic("plugin.Handle was called twice")
	}
	handler = function
}

// How often other goroutines are let run after the handler has returned.
const patience = 1000

// Answer calls the handler and puts what it returns into the contract's words. A goroutine that the
// handler has left behind runs only while another message is handled, or never: it is let run to its
// end here, and if it does not end the message is not done.
func Answer(wire types.Message) wit.Result[wit.Unit, types.Failure] {
	if handler == nil {
		panic("no handler: call plugin.Handle in an init")
	}
	before := runtime.NumGoroutine()
	err := handler(messageOf(wire))
	for i := 0; runtime.NumGoroutine() > before && i < patience; i++ {
		runtime.Gosched()
	}
	if left := runtime.NumGoroutine() - before; err == nil && left > 0 {
		err = fmt.Errorf("the handler returned and left %d goroutines that do not end: wait for them", left)
	}
	if err == nil {
		return wit.Ok[wit.Unit, types.Failure](wit.Unit{})
	}
	var failure *Failure
	if errors.As(err, &failure) {
		return wit.Err[wit.Unit](failure.wire)
	}
	fmt.Fprintln(os.Stderr, err)
	again := types.Retry{After: wit.None[uint64](), Reason: wit.Some(err.Error())}
	return wit.Err[wit.Unit](types.MakeFailureRetry(again))
}
