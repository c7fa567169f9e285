"""HTTP requests through `dispatcher:plugin/http`. The dispatcher checks the host of a request,
resolves its name and handles TLS. Redirects are not followed, and cookies are not stored."""

from __future__ import annotations

import json as _json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

from .failures import Reject, Retry, milliseconds
from .host import HostError, need

# The errors after which nothing was sent.
_NOT_SENT = ("forbidden", "invalid", "busy", "unreachable")
# The statuses below 500 after which a retry may succeed.
_PASSING = (401, 403, 408, 425, 429)


class RequestError(Exception):
    """The reason why a request got no response. `code` is one of forbidden, invalid, busy,
    unreachable, timed-out, interrupted and too-large. If the handler does not catch it, the attempt
    fails and the message is retried by policy."""

    def __init__(self, code: str, why: object):
        text = f"the response has more than {why} bytes" if code == "too-large" else str(why)
        super().__init__(f"{code}: {text}")
        self.code = code

    @property
    def may_have_run(self) -> bool:
        """Whether the server may have carried out the request."""
        return self.code not in _NOT_SENT


class Headers(Mapping[str, str]):
    """Headers by name. Case does not matter. Several values of one name are joined by a comma."""

    def __init__(self, pairs: Iterable[tuple[str, str]]):
        self.pairs = [(name.lower(), value) for name, value in pairs]

    def get_all(self, name: str) -> list[str]:
        return [value for found, value in self.pairs if found == name.lower()]

    def __getitem__(self, name: str) -> str:
        values = self.get_all(name)
        if not values:
            raise KeyError(name)
        return ", ".join(values)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name for name, _ in self.pairs))

    def __len__(self) -> int:
        return len(dict(self.pairs))


class Response:
    """A response with any status."""

    def __init__(
        self,
        status: int,
        content: bytes | str = b"",
        headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
        url: str = "",
    ):
        self.status = status
        self.content = content.encode() if isinstance(content, str) else content
        self.headers = Headers(headers.items() if isinstance(headers, Mapping) else headers)
        self.url = url

    @property
    def ok(self) -> bool:
        return 200 <= self.status <= 299

    @property
    def text(self) -> str:
        return self.content.decode("utf-8", "replace")

    def json(self) -> Any:
        return _json.loads(self.content)

    def raise_for_status(self) -> Response:
        """Returns the response if its status is 2xx. Raises `Retry` for 401, 403, 408, 425, 429 and
        5xx, after the server's `retry-after` if it is a number of seconds. Raises `Reject` for any
        other status."""
        if self.ok:
            return self
        why = f"the response: {self.status}"
        if self.status < 500 and self.status not in _PASSING:
            raise Reject(why)
        seconds = self.headers.get("retry-after", "").strip()
        is_number = seconds.isascii() and seconds.isdigit() and len(seconds) < 10
        raise Retry(int(seconds) * 1000 or None if is_number else None, why)


def request(
    method: str,
    url: str,
    *,
    params: Mapping[str, object] | None = None,
    headers: Mapping[str, str] | Iterable[tuple[str, str]] | None = None,
    json: object = None,
    body: str | bytes = b"",
    timeout_ms: float | None = None,
    max_body: int | None = None,
) -> Response:
    """Sends a request and returns the response. Without `timeout_ms`, the time limit is nine tenths
    of the attempt's remaining time. The response body may have `max_body` bytes; 4 MiB by
    default."""
    if params:
        url += ("&" if "?" in url else "?") + urlencode(params, doseq=True)
    pairs = list(headers.items() if isinstance(headers, Mapping) else headers or ())
    if json is not None:
        if body:
            raise TypeError("a request has `json` or `body`, not both")
        body = _json.dumps(json)
        if not any(name.lower() == "content-type" for name, _ in pairs):
            pairs.append(("content-type", "application/json"))
    content = body.encode() if isinstance(body, str) else bytes(body)
    timeout = milliseconds(timeout_ms, "timeout_ms")
    try:
        answer = need("http").send(method.upper(), url, pairs, content, timeout, max_body)
    except HostError as error:
        raise RequestError(error.code, error.value) from None
    status, answered, received = answer
    return Response(status, received, answered, url)


def get(url: str, **options: Any) -> Response:
    return request("GET", url, **options)


def post(url: str, **options: Any) -> Response:
    return request("POST", url, **options)


def put(url: str, **options: Any) -> Response:
    return request("PUT", url, **options)


def patch(url: str, **options: Any) -> Response:
    return request("PATCH", url, **options)


def delete(url: str, **options: Any) -> Response:
    return request("DELETE", url, **options)
