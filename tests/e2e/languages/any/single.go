// After `go build`, `wasm-tools component embed` adds the world, which Go does not link.

package export_dispatcher_plugin_handler

import (
	"fmt"
	"net/url"
	"runtime"
	"runtime/debug"
	"strings"

	wit "go.bytecodealliance.org/pkg/wit/types"

	http "wit_component/dispatcher_plugin_http"
	httptypes "wit_component/dispatcher_plugin_http_types"
	types "wit_component/dispatcher_plugin_types"
	"wit_component/wasi_http_outgoing_handler"
	wasi "wit_component/wasi_http_types"
)

type result = wit.Result[wit.Unit, types.Failure]

var (
	done   = wit.Ok[wit.Unit, types.Failure]
	failed = wit.Err[wit.Unit, types.Failure]
)

// The garbage collector reads the clock, which traps while the host passes arguments. So it runs
// only where Handle calls it.
func init() { debug.SetGCPercent(-1) }

var calls int

func Handle(message types.Message) result {
	if calls++; calls%100 == 0 {
		runtime.GC()
	}
	verb, address, _ := strings.Cut(message.Body.Text(), " ")
	switch verb {
	case "done":
		fmt.Println("handled done")
		return done(wit.Unit{})
	case "later":
		return failed(types.MakeFailureRetry(types.Retry{
			After:  wit.Some(uint64(5000)),
			Reason: wit.Some("not yet"),
		}))
	case "http":
		return judge(getByContract(address))
	case "wasi":
		return judge(getByWasi(address))
	default:
		return reject("not wanted")
	}
}

func reject(why string) result {
	return failed(types.MakeFailureReject(why))
}

func judge(status uint16, err error) result {
	switch {
	case err != nil:
		return reject(err.Error())
	case status != 200:
		return reject(fmt.Sprintf("status %d", status))
	default:
		return done(wit.Unit{})
	}
}

func getByContract(address string) (uint16, error) {
	sent := http.Send(httptypes.Request{
		Method:  "GET",
		Url:     address,
		Timeout: wit.None[uint64](),
		MaxBody: wit.None[uint64](),
	})
	if sent.Tag() == wit.ResultErr {
		return 0, fmt.Errorf("http: %v", sent.Err())
	}
	return sent.Ok().Status, nil
}

func getByWasi(address string) (uint16, error) {
	parsed, err := url.Parse(address)
	if err != nil {
		return 0, err
	}
	scheme := wasi.MakeSchemeHttp()
	if parsed.Scheme == "https" {
		scheme = wasi.MakeSchemeHttps()
	}
	request := wasi.MakeOutgoingRequest(wasi.MakeFields())
	request.SetScheme(wit.Some(scheme))
	request.SetAuthority(wit.Some(parsed.Host))
	request.SetPathWithQuery(wit.Some(parsed.RequestURI()))
	started := wasi_http_outgoing_handler.Handle(request, wit.None[*wasi.RequestOptions]())
	if started.Tag() == wit.ResultErr {
		return 0, fmt.Errorf("wasi:http: %v", started.Err())
	}
	pending := started.Ok()
	defer pending.Drop()
	ready := pending.Subscribe()
	ready.Block()
	ready.Drop()
	response := pending.Get().Some().Ok()
	if response.Tag() == wit.ResultErr {
		return 0, fmt.Errorf("wasi:http: %v", response.Err())
	}
	defer response.Ok().Drop()
	return response.Ok().Status(), nil
}
