"""HTTP over the contract's requests, which are whole: the dispatcher decides where a request may go,
resolves names and does TLS. Redirects are not followed, and cookies are not kept."""

from __future__ import annotations

import json as _json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

from .failures import Reject, Retry, milliseconds
from .host import HostError, need

# After these nothing was sent.
_NOT_SENT = ("forbidden", "invalid", "busy", "unreachable")
# Statuses that may change without another request.
_PASSING = (401, 403, 408, 425, 429)


class RequestError(Exception):
    """A request without a response. `code` is one of forbidden, invalid, busy, unreachable, timed-out,
    interrupted and too-large. Not caught, it fails the attempt, which is retried by policy."""

    def __init__(self, code: str, why: object):
        text = f"the response has more than {why} bytes" if code == "too-large" else str(why)
        super().__init__(f"{code}: {text}")
        self.code = code

    @property
    def may_have_run(self) -> bool:
        """Whether the server may have carried it out."""
        return self.code not in _NOT_SENT


class Headers(Mapping[str, str]):
    """Headers by name, in any case. Values of one name are joined by a comma."""

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
    """A response, whatever its status."""

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
        """Raises what a status means for the message: `Retry` for 401, 403, 408, 425, 429 and 5xx, after
        the server's `retry-after` if it gives seconds; `Reject` for any other that is no success."""
        if self.ok:
            return self
        why = f"the answer: {self.status}"
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
    """Sends one request and returns the response. Without `timeout_ms` it may take nine tenths of what
    the attempt has left; a response's body may have 4 MiB, or `max_body` bytes."""
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
