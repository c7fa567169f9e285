const std = @import("std");
const c = @import("c");

const Messages = c.exports_dispatcher_plugin_batch_handler_list_message_t;
const ListFailed = c.exports_dispatcher_plugin_batch_handler_list_failed_t;
const Failed = c.exports_dispatcher_plugin_batch_handler_failed_t;
const Failure = c.exports_dispatcher_plugin_batch_handler_failure_t;

export fn exports_dispatcher_plugin_batch_handler_handle(
    messages: *Messages,
    failed: *ListFailed,
    _: *Failure,
) bool {
    defer c.exports_dispatcher_plugin_batch_handler_list_message_free(messages);
    const room = std.heap.c_allocator.alloc(Failed, messages.len) catch @panic("out of memory");
    failed.* = .{ .ptr = room.ptr, .len = 0 };
    for (messages.ptr[0..messages.len]) |message| {
        const body = message.body.val.text;
        if (std.mem.eql(u8, body.ptr[0..body.len], "done")) continue;
        const one = &room[failed.len];
        failed.len += 1;
        c.plain_batch_handler_string_dup_n(&one.id, message.id.ptr, message.id.len);
        one.failure.tag = c.DISPATCHER_PLUGIN_TYPES_FAILURE_REJECT;
        c.plain_batch_handler_string_dup(&one.failure.val.reject, "not wanted");
    }
    // The bindings free a list that is not empty.
    if (failed.len == 0) std.heap.c_allocator.free(room);
    return true;
}
