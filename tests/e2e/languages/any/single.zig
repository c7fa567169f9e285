const std = @import("std");
const c = @import("c");

const Failure = c.exports_dispatcher_plugin_handler_failure_t;

fn reject(failure: *Failure, comptime format: []const u8, arguments: anytype) bool {
    const why = std.fmt.allocPrint(std.heap.c_allocator, format, arguments) catch @panic("out of memory");
    failure.tag = c.DISPATCHER_PLUGIN_TYPES_FAILURE_REJECT;
    failure.val.reject = string(why);
    return false;
}

fn string(text: []const u8) c.single_string_t {
    return .{ .ptr = @constCast(text.ptr), .len = text.len };
}

fn judge(status: u16, failure: *Failure) bool {
    return status == 200 or reject(failure, "status {d}", .{status});
}

fn getByContract(url: []const u8, failure: *Failure) bool {
    var request = std.mem.zeroes(c.dispatcher_plugin_http_request_t);
    request.method = string("GET");
    request.url = string(url);
    var response: c.dispatcher_plugin_http_response_t = undefined;
    var problem: c.dispatcher_plugin_http_http_error_t = undefined;
    if (c.dispatcher_plugin_http_send(&request, &response, &problem)) {
        defer c.dispatcher_plugin_http_response_free(&response);
        return judge(response.status, failure);
    }
    defer c.dispatcher_plugin_http_http_error_free(&problem);
    if (problem.tag == c.DISPATCHER_PLUGIN_HTTP_TYPES_HTTP_ERROR_TOO_LARGE) {
        return reject(failure, "more than {d} bytes", .{problem.val.too_large});
    }
    // All other errors hold a text in the same place.
    const why = problem.val.forbidden;
    return reject(failure, "{s}", .{why.ptr[0..why.len]});
}

fn getByWasi(url: []const u8, failure: *Failure) bool {
    const colon = std.mem.indexOf(u8, url, "://") orelse return reject(failure, "not a URL", .{});
    const rest = url[colon + "://".len ..];
    const slash = std.mem.indexOfScalar(u8, rest, '/') orelse rest.len;
    var scheme = std.mem.zeroes(c.wasi_http_types_scheme_t);
    const is_https = std.mem.eql(u8, url[0..colon], "https");
    scheme.tag = if (is_https) c.WASI_HTTP_TYPES_SCHEME_HTTPS else c.WASI_HTTP_TYPES_SCHEME_HTTP;
    var authority = string(rest[0..slash]);
    var path = string(if (slash < rest.len) rest[slash..] else "/");

    const request = c.wasi_http_types_constructor_outgoing_request(c.wasi_http_types_constructor_fields());
    const builder = c.wasi_http_types_borrow_outgoing_request(request);
    _ = c.wasi_http_types_method_outgoing_request_set_scheme(builder, &scheme);
    _ = c.wasi_http_types_method_outgoing_request_set_authority(builder, &authority);
    _ = c.wasi_http_types_method_outgoing_request_set_path_with_query(builder, &path);

    var future: c.wasi_http_types_own_future_incoming_response_t = undefined;
    var problem: c.wasi_http_types_error_code_t = undefined;
    if (!c.wasi_http_outgoing_handler_handle(request, null, &future, &problem)) {
        defer c.wasi_http_types_error_code_free(&problem);
        return reject(failure, "error code {d}", .{problem.tag});
    }
    defer c.wasi_http_types_future_incoming_response_drop_own(future);
    const pending = c.wasi_http_types_borrow_future_incoming_response(future);
    const pollable = c.wasi_http_types_method_future_incoming_response_subscribe(pending);
    c.wasi_io_poll_method_pollable_block(c.wasi_io_poll_borrow_pollable(pollable));
    c.wasi_io_poll_pollable_drop_own(pollable);
    var result: c.wasi_http_types_result_result_own_incoming_response_error_code_void_t = undefined;
    _ = c.wasi_http_types_method_future_incoming_response_get(pending, &result);

    if (result.val.ok.is_err) {
        problem = result.val.ok.val.err;
        defer c.wasi_http_types_error_code_free(&problem);
        return reject(failure, "error code {d}", .{problem.tag});
    }
    const response = result.val.ok.val.ok;
    defer c.wasi_http_types_incoming_response_drop_own(response);
    const borrowed = c.wasi_http_types_borrow_incoming_response(response);
    return judge(c.wasi_http_types_method_incoming_response_status(borrowed), failure);
}

fn handle(body: []const u8, failure: *Failure) bool {
    if (std.mem.eql(u8, body, "done")) {
        const line = "handled done\n";
        _ = std.c.write(1, line, line.len);
        return true;
    }
    if (std.mem.eql(u8, body, "later")) {
        failure.tag = c.DISPATCHER_PLUGIN_TYPES_FAILURE_RETRY;
        failure.val.retry.after = .{ .is_some = true, .val = 5000 };
        failure.val.retry.reason.is_some = true;
        c.single_string_dup(&failure.val.retry.reason.val, "not yet");
        return false;
    }
    if (std.mem.startsWith(u8, body, "http ")) return getByContract(body["http ".len..], failure);
    if (std.mem.startsWith(u8, body, "wasi ")) return getByWasi(body["wasi ".len..], failure);
    return reject(failure, "not wanted", .{});
}

export fn exports_dispatcher_plugin_handler_handle(
    message: *c.exports_dispatcher_plugin_handler_message_t,
    failure: *Failure,
) bool {
    defer c.exports_dispatcher_plugin_handler_message_free(message);
    const body = message.body.val.text;
    return handle(body.ptr[0..body.len], failure);
}
