// Ways to end of which most do not handle the message; the body names one.
package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	_ "handlers/my-orders/bindings/wit_exports"
	"handlers/my-orders/plugin"
)

type own struct{}

func (*own) Error() string { return "an error of its own" }

func handle(message plugin.Message) error {
	switch message.Body {
	case "done":
		fmt.Println("worked")
	case "done-beside":
		// Nobody waits for it, and it runs to its end all the same.
		go fmt.Println("worked beside")
	case "retry":
		return plugin.Retry()
	case "reject":
		return plugin.Reject("no")
	case "error":
		return errors.New("wrong")
	case "nil-of-a-type":
		var none *own
		return none
	case "nil-failure":
		var none *plugin.Failure
		return none
	case "panics":
		panic("wrong")
	case "panics-with-error":
		panic(plugin.Reject("no"))
	case "panics-beside":
		go func() { panic("wrong beside") }()
	case "waits-beside":
		go func() { <-make(chan int) }()
	case "waits":
		<-make(chan int)
	case "ends-goroutine":
		runtime.Goexit()
	case "exits":
		os.Exit(0)
	default:
		return errors.New("no such case")
	}
	return nil
}

func init() { plugin.Handle(handle) }

func main() {}
