// Checks that the body is a well-formed order: `{"id": "o-1", "amount": 250, "ready": true}`.
// A malformed order is rejected, one that is not ready yet is tried again.
#include <inttypes.h>
#include <stdio.h>

#include "bindings/plugin.h"
#include "json.h"

typedef exports_dispatcher_plugin_handler_message_t message_t;
typedef exports_dispatcher_plugin_handler_failure_t failure_t;

// How long an order may take to become ready, where it does not say itself.
static const uint64_t PATIENCE_MS = 2000;

// Never again: the message goes to the dead-letter queue with this reason.
static bool reject(failure_t *failure, const char *why) {
  failure->tag = DISPATCHER_PLUGIN_TYPES_FAILURE_REJECT;
  plugin_string_dup(&failure->val.reject, why);
  return false;
}

// Again after so many milliseconds; with `is_some` false, as the route's policy says.
static bool retry(failure_t *failure, uint64_t after_ms) {
  failure->tag = DISPATCHER_PLUGIN_TYPES_FAILURE_RETRY;
  failure->val.retry.after = (plugin_option_u64_t){.is_some = true, .val = after_ms};
  failure->val.retry.reason.is_some = false;
  return false;
}

static bool check(const dispatcher_plugin_types_body_t *body, failure_t *failure) {
  json_t order, id;
  uint64_t amount, patience;
  // Text or bytes lie in the same place.
  const plugin_list_u8_t *bytes = &body->val.bytes;
  if (!json_parse((const char *)bytes->ptr, bytes->len, &order)) {
    return reject(failure, "the body: wanted JSON");
  }
  if (!json_string(json_member(order, "id"), &id)) {
    return reject(failure, "`id`: wanted a string");
  }
  if (!json_whole(json_member(order, "amount"), &amount)) {
    return reject(failure, "`amount`: wanted a whole number of cents");
  }
  if (amount == 0) return reject(failure, "`amount`: wanted more than nothing");
  json_t ready = json_member(order, "ready");
  if (json_is(ready, "false")) {
    bool says = json_whole(json_member(order, "ready_in_ms"), &patience);
    return retry(failure, says ? patience : PATIENCE_MS);
  }
  if (ready.at && !json_is(ready, "true") && !json_is(ready, "null")) {
    return reject(failure, "`ready`: wanted true or false");
  }
  printf("order %.*s: %" PRIu64 " cents\n", (int)id.length, id.at, amount);
  return true;
}

// The export: true is done, false is the failure. The message is ours to free.
bool exports_dispatcher_plugin_handler_handle(message_t *message, failure_t *failure) {
  bool is_done = check(&message->body, failure);
  dispatcher_plugin_types_message_free(message);
  // Nothing else empties it: a plugin's `main` never returns.
  fflush(stdout);
  return is_done;
}
