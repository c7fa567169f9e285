// Ways to end of which most do not handle the message; the body names one.
#include <stdlib.h>
#include <string.h>

#include "bindings/plugin.h"

static bool is(const plugin_list_u8_t *body, const char *name) {
  return body->len == strlen(name) && !memcmp(body->ptr, name, body->len);
}

bool exports_dispatcher_plugin_handler_handle(
    exports_dispatcher_plugin_handler_message_t *message,
    exports_dispatcher_plugin_handler_failure_t *failure) {
  const plugin_list_u8_t *body = &message->body.val.bytes;
  if (is(body, "done")) return true;
  if (is(body, "reject")) {
    failure->tag = DISPATCHER_PLUGIN_TYPES_FAILURE_REJECT;
    plugin_string_dup(&failure->val.reject, "no");
    return false;
  }
  if (is(body, "bad-tag")) {
    failure->tag = 77;
    return false;
  }
  if (is(body, "no-failure")) return false;
  if (is(body, "aborts")) abort();
  if (is(body, "exits")) exit(0);
  if (is(body, "traps")) __builtin_trap();
  return false;
}
