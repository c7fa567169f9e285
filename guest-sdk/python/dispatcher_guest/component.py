"""Connects the SDK to the modules that componentize-py generates for a component's imports. Only a
component loads this module, before the handler."""

import importlib
import logging
import pkgutil

import wit_world.imports
from componentize_py_types import Err
from wit_world.imports import types

from .failures import Busy, Closed, Reject, Retry
from .host import HostError, provide
from .message import Message, TraceContext
from .telemetry import LogHandler


def _generated():
    """Returns the generated modules by name. A component has only those that its world imports."""
    found = pkgutil.iter_modules(wit_world.imports.__path__)
    return {one.name: importlib.import_module(f"wit_world.imports.{one.name}") for one in found}


def _kebab(name):
    """Converts a generated name to the contract's: `HttpError_TimedOut` to `timed-out`."""
    last = name.rsplit("_", 1)[-1]
    return "".join(f"-{char.lower()}" if char.isupper() else char for char in last).lstrip("-")


def _told(call, *arguments):
    try:
        return call(*arguments)
    except Err as error:
        value = error.value
        raise HostError(_kebab(type(value).__name__), getattr(value, "value", None)) from None


def _body(content):
    return types.Body_Text(content) if isinstance(content, str) else types.Body_Bytes(content)


def _value(content):
    is_text = isinstance(content, str)
    return types.AttributeValue_Text(content) if is_text else types.AttributeValue_Binary(content)


class Http:
    def __init__(self, http, http_types):
        self._send = http.send
        self._request = http_types.Request

    def send(self, method, url, headers, body, timeout, max_body):
        response = _told(self._send, self._request(method, url, headers, body, timeout, max_body, False))
        return response.status, response.headers, response.body


class Queues:
    def __init__(self, queues, queues_types):
        self._send = queues.send
        self._outgoing = queues_types.Outgoing

    def send(self, queue, body, attributes, delay, group, deduplication_id):
        pairs = [types.Attribute(name, kind, _value(value)) for name, kind, value in attributes]
        outgoing = self._outgoing(_body(body), pairs, delay, group, deduplication_id)
        return _told(self._send, queue, outgoing)


class Functions:
    def __init__(self, functions, functions_types):
        self._invoke = functions.invoke
        self._types = functions_types

    def invoke(self, function, wait, payload):
        kinds = self._types.Invocation
        kind = kinds.REQUEST_RESPONSE if wait else kinds.EVENT
        try:
            response = _told(self._invoke, self._types.Request(function, kind, payload, False, None))
        except HostError as error:
            if error.code == "did-not-run":
                error.value = (error.value.reason, error.value.retry_after)
            raise
        return response.payload, response.function_error


class Log:
    def __init__(self, log):
        self._log = log

    def write(self, level, text, fields):
        self._log.write(self._log.Entry(self._log.Level[level.upper()], text, fields, None))


class Metrics:
    def __init__(self, metrics):
        self._metrics = metrics

    def add(self, name, labels, value):
        _told(self._metrics.add, name, labels, value)

    def set(self, name, labels, value):
        _told(self._metrics.set, name, labels, value)


def _stored(call, *arguments):
    """Makes a call and converts the errors of stores and settings to those of the SDK."""
    try:
        return _told(call, *arguments)
    except HostError as error:
        if error.code in ("access-denied", "no-such-store"):
            raise HostError("access-denied", "the store is not granted to this plugin: --store") from None
        raise HostError("failed", error.value) from None


class Bucket:
    def __init__(self, bucket, atomics):
        self._bucket = bucket
        self._atomics = atomics

    def get(self, key):
        return _stored(self._bucket.get, key)

    def set(self, key, value):
        _stored(self._bucket.set, key, value)

    def delete(self, key):
        _stored(self._bucket.delete, key)

    def exists(self, key):
        return _stored(self._bucket.exists, key)

    def keys(self):
        keys, cursor = [], None
        while True:
            page = _stored(self._bucket.list_keys, cursor)
            keys.extend(page.keys)
            cursor = page.cursor
            if cursor is None:
                return keys

    def increment(self, key, by):
        if self._atomics is None:
            raise HostError("failed", "wit/world.wit does not import wasi:keyvalue/atomics@0.2.0-draft2")
        return _stored(self._atomics.increment, self._bucket, key, by)


class Stores:
    def __init__(self, store, atomics):
        self._store = store
        self._atomics = atomics

    def open(self, name):
        return Bucket(_stored(self._store.open, name), self._atomics)


class Settings:
    def __init__(self, config):
        self._config = config

    def get(self, name):
        return _stored(self._config.get, name)


def _interfaces():
    found = _generated()
    provided = {}
    if "context" in found:
        provided["context"] = found["context"]
    if "http" in found:
        provided["http"] = Http(found["http"], found["http_types"])
    if "queues" in found:
        provided["queues"] = Queues(found["queues"], found["queues_types"])
    if "lambda_" in found:
        provided["lambda"] = Functions(found["lambda_"], found["lambda_types"])
    if "log" in found:
        provided["log"] = Log(found["log"])
    if "metrics" in found:
        provided["metrics"] = Metrics(found["metrics"])
    # Two WASI packages have an interface `store`, so their module names vary.
    for module in found.values():
        if hasattr(module, "Bucket") and hasattr(module, "open"):
            provided["store"] = Stores(module, found.get("atomics"))
        elif hasattr(module, "get_all"):
            provided["settings"] = Settings(module)
    return provided


_INTERFACES = _interfaces()
provide(_INTERFACES)
if "log" in _INTERFACES:
    logging.getLogger().addHandler(LogHandler())
    logging.getLogger().setLevel(logging.INFO)


def message_of(raw):
    """Converts a message of the contract to the one that a handler gets."""
    trace = raw.trace and TraceContext(raw.trace.traceparent, raw.trace.tracestate)
    return Message(
        **{
            **vars(raw),
            "body": raw.body.value,
            "trace": trace,
            "attributes": {one.name: one.value.value for one in raw.attributes},
            "system_attributes": dict(raw.system_attributes),
        }
    )


def failure_of(failure):
    """Converts an exception to a failure of the contract; None if it is not a failure."""
    if isinstance(failure, Retry):
        return types.Failure_Retry(types.Retry(failure.after_ms, failure.reason))
    if isinstance(failure, Reject):
        return types.Failure_Reject(failure.reason)
    if isinstance(failure, Busy):
        return types.Failure_Busy(types.Busy(failure.after_ms, failure.reason))
    if isinstance(failure, Closed):
        return types.Failure_Closed(failure.reason)
    return None
