package plugin

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	wire "handlers/order-check/bindings/dispatcher_plugin_http"
	httptypes "handlers/order-check/bindings/dispatcher_plugin_http_types"
	wit "handlers/order-check/support/types"
)

// Request is one HTTP request. The configuration grants its host, `allow-http`; redirects are not
// followed.
type Request struct {
	Method string
	URL    string
	Header map[string]string
	Body   []byte
	// Timeout of the whole; nine tenths of what the attempt has left if it is nothing.
	Timeout time.Duration
	// MaxBody is the most bytes of the response's body; 4 MiB if it is nothing.
	MaxBody uint64
}

// Response is one response, whatever its status. Names of headers are in lower case.
type Response struct {
	Status int
	Header [][2]string
	Body   []byte
}

// HTTPError is a request without a response. Returned by a handler it is a retry by policy.
type HTTPError struct {
	// Code is forbidden, invalid, busy, unreachable, timed-out, interrupted or too-large.
	Code string
	Why  string
}

// Error tells a person.
func (failed *HTTPError) Error() string { return failed.Code + ": " + failed.Why }

// MayHaveRun says whether the server may have carried it out.
func (failed *HTTPError) MayHaveRun() bool {
	switch failed.Code {
	case "timed-out", "interrupted", "too-large":
		return true
	default:
		return false
	}
}

// Do sends a request and waits for the response.
func Do(request Request) (*Response, error) {
	sent := httptypes.Request{
		Method:  request.Method,
		Url:     request.URL,
		Body:    request.Body,
		Timeout: wit.None[uint64](),
		MaxBody: wit.None[uint64](),
	}
	for name, value := range request.Header {
		sent.Headers = append(sent.Headers, wit.Tuple2[string, string]{F0: name, F1: value})
	}
	if request.Timeout > 0 {
		sent.Timeout = milliseconds(request.Timeout)
	}
	if request.MaxBody > 0 {
		sent.MaxBody = wit.Some(request.MaxBody)
	}
	answer := wire.Send(sent)
	if answer.Tag() == wit.ResultErr {
		return nil, httpError(answer.Err())
	}
	received := answer.Ok()
	response := &Response{Status: int(received.Status), Body: received.Body}
	for _, pair := range received.Headers {
		response.Header = append(response.Header, [2]string{pair.F0, pair.F1})
	}
	return response, nil
}

func httpError(failed httptypes.HttpError) error {
	switch failed.Tag() {
	case httptypes.HttpErrorForbidden:
		return &HTTPError{"forbidden", failed.Forbidden()}
	case httptypes.HttpErrorInvalid:
		return &HTTPError{"invalid", failed.Invalid()}
	case httptypes.HttpErrorBusy:
		return &HTTPError{"busy", failed.Busy()}
	case httptypes.HttpErrorUnreachable:
		return &HTTPError{"unreachable", failed.Unreachable()}
	case httptypes.HttpErrorTimedOut:
		return &HTTPError{"timed-out", failed.TimedOut()}
	case httptypes.HttpErrorInterrupted:
		return &HTTPError{"interrupted", failed.Interrupted()}
	default:
		return &HTTPError{"too-large", fmt.Sprintf("the response has more than %d bytes", failed.TooLarge())}
	}
}

// Get is the first header of this name, or nothing.
func (response *Response) Get(name string) string {
	for _, pair := range response.Header {
		if strings.EqualFold(pair[0], name) {
			return pair[1]
		}
	}
	return ""
}

// Succeeded is nil for a status of 2xx. It is a retry for 401, 403, 408, 425, 429 and 5xx, after the
// seconds of `retry-after` if the response has them, and a rejection for any other.
func (response *Response) Succeeded() error {
	why := fmt.Sprintf("the response: %d", response.Status)
	switch status := response.Status; {
	case status >= 200 && status <= 299:
		return nil
	case status == 401, status == 403, status == 408, status == 425, status == 429, status >= 500:
		after, _ := strconv.ParseUint(strings.TrimSpace(response.Get("retry-after")), 10, 31)
		return RetryBecause(time.Duration(after)*time.Second, why)
	default:
		return Reject(why)
	}
}
