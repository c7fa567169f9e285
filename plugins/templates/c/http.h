// HTTP over the contract, under the grants of --allow-http. Redirects are not followed.
#ifndef HTTP_H
#define HTTP_H

#include "bindings/plugin.h"

typedef dispatcher_plugin_http_response_t http_response_t;

// Sends a request and waits for the response, which is then the caller's to free, with
// `dispatcher_plugin_http_response_free`. A body of no length is none; `type` is its content-type.
// False where there is no response, or one whose status is no success: `failure` is then what becomes
// of the message. That is a retry for 401, 403, 408, 425, 429 and 5xx, after the seconds of
// `retry-after`, and a rejection for any other status and for what is no request.
bool http_send(const char *method, const char *url, const char *type, const char *body, size_t length,
               http_response_t *response, exports_dispatcher_plugin_handler_failure_t *failure);

#endif
