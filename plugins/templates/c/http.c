#include "http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef exports_dispatcher_plugin_handler_failure_t failure_t;

// Text that somebody else keeps.
static plugin_string_t text(const char *text) {
  return (plugin_string_t){.ptr = (uint8_t *)text, .len = strlen(text)};
}

static bool retry(failure_t *failure, uint64_t after_ms, const char *why) {
  failure->tag = DISPATCHER_PLUGIN_TYPES_FAILURE_RETRY;
  failure->val.retry.after = (plugin_option_u64_t){.is_some = after_ms > 0, .val = after_ms};
  failure->val.retry.reason.is_some = true;
  plugin_string_dup(&failure->val.retry.reason.val, why);
  return false;
}

static bool reject(failure_t *failure, const char *why) {
  failure->tag = DISPATCHER_PLUGIN_TYPES_FAILURE_REJECT;
  plugin_string_dup(&failure->val.reject, why);
  return false;
}

// What a request without a response means.
static bool failed(const dispatcher_plugin_http_http_error_t *error, failure_t *failure) {
  char why[512];
  if (error->tag == DISPATCHER_PLUGIN_HTTP_TYPES_HTTP_ERROR_TOO_LARGE) {
    return retry(failure, 0, "the response is too large");
  }
  // All others are text.
  const plugin_string_t *told = &error->val.invalid;
  snprintf(why, sizeof why, "no response: %.*s", (int)told->len, (const char *)told->ptr);
  if (error->tag == DISPATCHER_PLUGIN_HTTP_TYPES_HTTP_ERROR_INVALID) return reject(failure, why);
  return retry(failure, 0, why);
}

// The seconds of `retry-after` in milliseconds; 0 without any.
static uint64_t after_ms(const http_response_t *response) {
  for (size_t i = 0; i < response->headers.len; i++) {
    const plugin_tuple2_string_string_t *header = &response->headers.ptr[i];
    if (header->f0.len != 11 || memcmp(header->f0.ptr, "retry-after", 11)) continue;
    char seconds[10] = "";
    if (header->f1.len >= sizeof seconds) return 0;
    memcpy(seconds, header->f1.ptr, header->f1.len);
    return strtoull(seconds, NULL, 10) * 1000;
  }
  return 0;
}

static bool succeeded(const http_response_t *response, failure_t *failure) {
  uint16_t status = response->status;
  if (status >= 200 && status <= 299) return true;
  char why[32];
  snprintf(why, sizeof why, "the response: %u", status);
  bool may_change = status == 401 || status == 403 || status == 408 || status == 425 || status == 429;
  if (may_change || status >= 500) return retry(failure, after_ms(response), why);
  return reject(failure, why);
}

bool http_send(const char *method, const char *url, const char *type, const char *body, size_t length,
               http_response_t *response, failure_t *failure) {
  plugin_tuple2_string_string_t header = {.f0 = text("content-type"), .f1 = text(type ? type : "")};
  dispatcher_plugin_http_request_t request = {
      .method = text(method),
      .url = text(url),
      .headers = {.ptr = &header, .len = type != NULL},
      .body = {.ptr = (uint8_t *)body, .len = length},
  };
  dispatcher_plugin_http_http_error_t error;
  if (!dispatcher_plugin_http_send(&request, response, &error)) {
    failed(&error, failure);
    dispatcher_plugin_http_http_error_free(&error);
    return false;
  }
  if (succeeded(response, failure)) return true;
  dispatcher_plugin_http_response_free(response);
  return false;
}
