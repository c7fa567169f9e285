#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "single.h"

typedef exports_dispatcher_plugin_handler_message_t message_t;
typedef exports_dispatcher_plugin_handler_failure_t failure_t;

static bool reject(failure_t *failure, const char *format, ...) {
  char why[500];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(why, sizeof why, format, arguments);
  va_end(arguments);
  failure->tag = DISPATCHER_PLUGIN_TYPES_FAILURE_REJECT;
  single_string_dup(&failure->val.reject, why);
  return false;
}

static bool judge(uint16_t status, failure_t *failure) {
  return status == 200 || reject(failure, "status %d", status);
}

static bool get_by_contract(single_string_t url, failure_t *failure) {
  dispatcher_plugin_http_request_t request = {.url = url};
  single_string_set(&request.method, "GET");
  dispatcher_plugin_http_response_t response;
  dispatcher_plugin_http_http_error_t error;
  if (dispatcher_plugin_http_send(&request, &response, &error)) {
    bool is_done = judge(response.status, failure);
    dispatcher_plugin_http_response_free(&response);
    return is_done;
  }
  if (error.tag == DISPATCHER_PLUGIN_HTTP_TYPES_HTTP_ERROR_TOO_LARGE) {
    reject(failure, "more than %llu bytes", error.val.too_large);
  } else {
    // All other errors hold a text in the same place.
    reject(failure, "%.*s", (int)error.val.forbidden.len, error.val.forbidden.ptr);
  }
  dispatcher_plugin_http_http_error_free(&error);
  return false;
}

// Takes a URL such as `http://127.0.0.1:8080/orders`.
static bool get_by_wasi(single_string_t url, failure_t *failure) {
  size_t scheme_length = strlen("http://");
  if (url.len < scheme_length) return reject(failure, "not a URL");
  single_string_t authority = {url.ptr + scheme_length, url.len - scheme_length};
  uint8_t *slash = memchr(authority.ptr, '/', authority.len);
  single_string_t path;
  single_string_set(&path, "/");
  if (slash) {
    path = (single_string_t){slash, (size_t)(url.ptr + url.len - slash)};
    authority.len -= path.len;
  }

  wasi_http_types_own_outgoing_request_t request =
      wasi_http_types_constructor_outgoing_request(wasi_http_types_constructor_fields());
  wasi_http_types_borrow_outgoing_request_t builder = wasi_http_types_borrow_outgoing_request(request);
  wasi_http_types_scheme_t scheme = {.tag = WASI_HTTP_TYPES_SCHEME_HTTP};
  wasi_http_types_method_outgoing_request_set_scheme(builder, &scheme);
  wasi_http_types_method_outgoing_request_set_authority(builder, &authority);
  wasi_http_types_method_outgoing_request_set_path_with_query(builder, &path);

  wasi_http_types_own_future_incoming_response_t future;
  wasi_http_types_error_code_t error;
  if (!wasi_http_outgoing_handler_handle(request, NULL, &future, &error)) {
    wasi_http_types_error_code_free(&error);
    return reject(failure, "error code %d", error.tag);
  }
  wasi_http_types_borrow_future_incoming_response_t pending =
      wasi_http_types_borrow_future_incoming_response(future);
  wasi_io_poll_own_pollable_t pollable =
      wasi_http_types_method_future_incoming_response_subscribe(pending);
  wasi_io_poll_method_pollable_block(wasi_io_poll_borrow_pollable(pollable));
  wasi_io_poll_pollable_drop_own(pollable);
  wasi_http_types_result_result_own_incoming_response_error_code_void_t result;
  wasi_http_types_method_future_incoming_response_get(pending, &result);
  wasi_http_types_future_incoming_response_drop_own(future);

  if (result.val.ok.is_err) {
    error = result.val.ok.val.err;
    wasi_http_types_error_code_free(&error);
    return reject(failure, "error code %d", error.tag);
  }
  wasi_http_types_own_incoming_response_t response = result.val.ok.val.ok;
  uint16_t status = wasi_http_types_method_incoming_response_status(
      wasi_http_types_borrow_incoming_response(response));
  wasi_http_types_incoming_response_drop_own(response);
  return judge(status, failure);
}

static bool starts_with(single_string_t text, const char *word) {
  return text.len >= strlen(word) && memcmp(text.ptr, word, strlen(word)) == 0;
}

static bool handle(single_string_t body, failure_t *failure) {
  single_string_t url = {body.ptr + 5, body.len - 5};
  if (starts_with(body, "http ")) return get_by_contract(url, failure);
  if (starts_with(body, "wasi ")) return get_by_wasi(url, failure);
  if (starts_with(body, "done")) {
    puts("handled done");
    fflush(stdout);
    return true;
  }
  if (starts_with(body, "later")) {
    failure->tag = DISPATCHER_PLUGIN_TYPES_FAILURE_RETRY;
    failure->val.retry.after = (single_option_u64_t){.is_some = true, .val = 5000};
    failure->val.retry.reason.is_some = true;
    single_string_dup(&failure->val.retry.reason.val, "not yet");
    return false;
  }
  return reject(failure, "not wanted");
}

bool exports_dispatcher_plugin_handler_handle(message_t *message, failure_t *failure) {
  bool is_done = handle(message->body.val.text, failure);
  exports_dispatcher_plugin_handler_message_free(message);
  return is_done;
}
