#include <stdlib.h>
#include <string.h>

#include "plain_batch_handler.h"

typedef exports_dispatcher_plugin_batch_handler_list_message_t messages_t;
typedef exports_dispatcher_plugin_batch_handler_message_t message_t;
typedef exports_dispatcher_plugin_batch_handler_list_failed_t list_failed_t;
typedef exports_dispatcher_plugin_batch_handler_failed_t failed_t;
typedef exports_dispatcher_plugin_batch_handler_failure_t failure_t;

static bool is_done(const message_t *message) {
  plain_batch_handler_string_t body = message->body.val.text;
  return body.len == 4 && memcmp(body.ptr, "done", 4) == 0;
}

bool exports_dispatcher_plugin_batch_handler_handle(messages_t *messages, list_failed_t *failed,
                                                    failure_t *failure) {
  (void)failure;
  failed->ptr = calloc(messages->len, sizeof(failed_t));
  failed->len = 0;
  for (size_t i = 0; i < messages->len; i++) {
    message_t *message = &messages->ptr[i];
    if (is_done(message)) continue;
    failed_t *one = &failed->ptr[failed->len++];
    plain_batch_handler_string_dup_n(&one->id, (char *)message->id.ptr, message->id.len);
    one->failure.tag = DISPATCHER_PLUGIN_TYPES_FAILURE_REJECT;
    plain_batch_handler_string_dup(&one->failure.val.reject, "not wanted");
  }
  // The bindings free a list that is not empty.
  if (failed->len == 0) free(failed->ptr);
  exports_dispatcher_plugin_batch_handler_list_message_free(messages);
  return true;
}
