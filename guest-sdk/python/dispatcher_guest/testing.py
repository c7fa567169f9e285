"""Runs handlers in tests with `pytest`, without WebAssembly. `fake_host` replaces the dispatcher,
and `run` calls a handler and returns the outcome that the dispatcher would get."""

from __future__ import annotations

import inspect
import json
import logging
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from .failures import Busy, Closed, Failed, Failure, Reject, Retry
from .host import HostError, provide
from .http import Headers, Response
from .message import Message
from .telemetry import LogHandler

__all__ = ["FakeHost", "Request", "Response", "Sent", "fake_host", "message", "run", "run_batch"]


# The maximum size of a response body in bytes, as in the host.
MOST_BODY = 4 * 1024 * 1024


@dataclass
class Request:
    """A request that a handler sent."""

    method: str
    url: str
    headers: Headers
    content: bytes
    timeout_ms: int | None = None

    @property
    def text(self) -> str:
        return self.content.decode()

    def json(self) -> Any:
        return json.loads(self.content)


@dataclass
class Sent:
    """A message that a handler sent."""

    queue: str
    body: str | bytes
    delay_ms: int = 0
    attributes: dict[str, str | bytes] = field(default_factory=dict)
    group: str | None = None
    deduplication_id: str | None = None

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class FakeHost:
    """The record of what handlers requested from the fake host."""

    requests: list[Request] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    invoked: list[tuple[str, Any]] = field(default_factory=list)
    # The level, the text and the fields of each line.
    logged: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    counts: dict[str, float] = field(default_factory=dict)
    gauges: dict[str, float] = field(default_factory=dict)
    # The values of each store, by key.
    stores: dict[str, dict[str, bytes]] = field(default_factory=dict)
    # The IDs of the messages whose outcome the dispatcher ignores. A test adds them.
    cancelled: set[str] = field(default_factory=set)


class _Context:
    def __init__(self, told: FakeHost, max_timeout_ms: float):
        self._told, self._max = told, max_timeout_ms

    def cancelled(self, id: str) -> bool:
        return id in self._told.cancelled

    def extend(self, id: str, ms: int) -> int:
        return int(time.time() * 1000 + min(ms, self._max))


class _Http:
    def __init__(self, told: FakeHost, answer: Callable[[Request], Response] | None):
        self._told, self._answer = told, answer

    def send(self, method, url, headers, body, timeout, max_body):
        if self._answer is None:
            raise HostError("forbidden", "no HTTP is granted: fake_host(http=lambda request: Response(200))")
        request = Request(method, url, Headers(headers), body, timeout)
        self._told.requests.append(request)
        response = self._answer(request)
        limit = MOST_BODY if max_body is None else max_body
        if len(response.content) > limit:
            raise HostError("too-large", limit)
        return response.status, response.headers.pairs, response.content


class _Queues:
    def __init__(self, told: FakeHost, granted: tuple[str, ...]):
        self._told, self._granted = told, granted

    def send(self, queue, body, attributes, delay, group, deduplication_id):
        if queue not in self._granted:
            raise HostError("forbidden", f'the queue {queue} is not granted: fake_host(queues=["{queue}"])')
        own = {name: value for name, _, value in attributes}
        self._told.sent.append(Sent(queue, body, delay, own, group, deduplication_id))
        return f"sent-{len(self._told.sent)}"


class _Functions:
    def __init__(self, told: FakeHost, granted: Mapping[str, Callable[[Any], Any]]):
        self._told, self._granted = told, granted

    def invoke(self, function, wait, payload):
        if function not in self._granted:
            raise HostError("forbidden", f"the function {function} is not granted: fake_host(functions=...)")
        event = json.loads(payload)
        self._told.invoked.append((function, event))
        answer = self._granted[function](event)
        return (json.dumps(answer).encode() if wait else b""), None


class _Log:
    def __init__(self, told: FakeHost):
        self._told = told

    def write(self, level, text, fields):
        self._told.logged.append((level, text, dict(fields)))


class _Metrics:
    def __init__(self, told: FakeHost):
        self._told = told

    def add(self, name, labels, value):
        if value < 0:
            raise HostError("invalid", "a counter only grows")
        key = _named(name, labels)
        self._told.counts[key] = self._told.counts.get(key, 0) + value

    def set(self, name, labels, value):
        self._told.gauges[_named(name, labels)] = value


def _named(name, labels):
    return " ".join([name, *(f"{label}={value}" for label, value in labels)])


class _Bucket:
    def __init__(self, values: dict[str, bytes]):
        self._values = values
        self.set, self.get = values.__setitem__, values.get

    def delete(self, key):
        self._values.pop(key, None)

    def exists(self, key):
        return key in self._values

    def keys(self):
        return list(self._values)

    def increment(self, key, by):
        try:
            total = int(self._values.get(key, b"0")) + by
        except ValueError as error:
            raise HostError("failed", str(error)) from None
        self._values[key] = str(total).encode()
        return total


class _Stores:
    def __init__(self, told: FakeHost):
        self._told = told

    def open(self, name):
        if name not in self._told.stores:
            raise HostError("access-denied", f'the store {name} is not granted: fake_host(stores=["{name}"])')
        return _Bucket(self._told.stores[name])


class _Settings:
    def __init__(self, settings: Mapping[str, str]):
        self.get = settings.get


def fake_host(
    *,
    http: Callable[[Request], Response] | None = None,
    queues: tuple[str, ...] | list[str] = (),
    functions: Mapping[str, Callable[[Any], Any]] | None = None,
    stores: tuple[str, ...] | list[str] = (),
    settings: Mapping[str, str] | None = None,
    max_timeout_ms: float = float("inf"),
) -> FakeHost:
    """Replaces the dispatcher until the next call, with these grants. Returns a record of what
    handlers requested."""
    told = FakeHost(stores={name: {} for name in stores})
    provide(
        {
            "context": _Context(told, max_timeout_ms),
            "http": _Http(told, http),
            "queues": _Queues(told, tuple(queues)),
            "lambda": _Functions(told, functions or {}),
            "log": _Log(told),
            "metrics": _Metrics(told),
            "store": _Stores(told),
            "settings": _Settings(settings or {}),
        }
    )
    root = logging.getLogger()
    if not any(isinstance(handler, LogHandler) for handler in root.handlers):
        # As in a component.
        root.addHandler(LogHandler())
        root.setLevel(logging.INFO)
    return told


def message(body: object, **more: Any) -> Message:
    """Creates a message for a test, from `local:default`. A body that is not text or bytes becomes
    JSON."""
    known = {
        "id": "a-message",
        "queue": "local:default",
        "body": body if isinstance(body, (str, bytes)) else json.dumps(body),
        "source": "local:default",
        "receipt": "a-receipt",
        "receive_count": 1,
        "attempt": 1,
        "idempotency_key": "0123456789abcdef0123456789abcdef",
        "trace": None,
        "deadline": int(time.time() * 1000) + 30_000,
    }
    return Message(**{**known, **more})


def _outcome(failure: Failure) -> dict[str, Any]:
    if isinstance(failure, Reject):
        return {"reject": failure.reason}
    if isinstance(failure, Closed):
        return {"closed": failure.reason}
    if isinstance(failure, (Retry, Busy)):
        name = type(failure).__name__.lower()
        return {name: {"after_ms": failure.after_ms, "reason": failure.reason}}
    raise failure


@contextmanager
def _noting_lost_coroutines() -> Iterator[list[str]]:
    """Collects the warnings about coroutines that are dropped without being awaited."""
    lost: list[str] = []
    before = sys.unraisablehook

    def note(unraisable: Any) -> None:
        if isinstance(unraisable.exc_value, RuntimeWarning):
            lost.append(str(unraisable.exc_value))
        else:
            before(unraisable)

    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="coroutine .* was never awaited", category=RuntimeWarning)
        sys.unraisablehook = note
        try:
            yield lost
        finally:
            sys.unraisablehook = before


def _answer(handle: Callable[[Any], Any], argument: Any) -> Any:
    """Calls a handler and returns its return value. Raises if it leaves a coroutine without
    awaiting it."""
    with _noting_lost_coroutines() as lost:
        answer = handle(argument)
        if inspect.iscoroutine(answer):
            answer.close()
            raise TypeError("the handler returned a coroutine, which nothing runs; wanted a plain function")
    if lost:
        raise RuntimeError(f"the work is not done: {lost[0]}")
    return answer


def run(handle: Callable[[Message], None], one: object) -> dict[str, Any]:
    """Runs a handler on a message, or on a message with this body. Returns the outcome, such as
    `{"done": True}`, `{"reject": "why"}` or `{"retry": {"after_ms": 2000, "reason": None}}`. Raises
    an exception if the attempt fails for another reason: the handler raised another exception,
    returned a value, or did not await a coroutine."""
    try:
        answer = _answer(handle, one if isinstance(one, Message) else message(one))
    except Failure as failure:
        return _outcome(failure)
    if answer is not None:
        raise TypeError(f"the handler returned {answer!r}; wanted nothing")
    return {"done": True}


def _are_failed(answer: list[Any]) -> bool:
    return all(isinstance(one, Failed) and isinstance(one.failure, Failure) for one in answer)


def run_batch(handle: Callable[[list[Message]], list[Failed]], bodies: Iterable[object]) -> list[dict[str, Any]]:
    """Runs a handler of batches on messages, or on messages with these bodies. Returns the outcome
    of each message, in order."""
    messages = [
        one if isinstance(one, Message) else message(one, id=f"message-{number}") for number, one in enumerate(bodies, 1)
    ]
    try:
        answer = _answer(handle, messages)
    except Failure as failure:
        return [_outcome(failure) for _ in messages]
    if not isinstance(answer, list) or not _are_failed(answer):
        raise TypeError(
            f"the handler returned {answer!r}; wanted a list of the messages that failed, "
            "[Failed(id, failure)], empty when all are done"
        )
    known = {one.id for one in messages}
    for failed in answer:
        if failed.id not in known:
            raise TypeError(f"the handler returned an id of no message: {failed.id}")
    outcomes = {failed.id: _outcome(failed.failure) for failed in answer}
    return [outcomes.get(one.id, {"done": True}) for one in messages]
