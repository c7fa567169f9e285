"""Sends messages to the queues that the configuration grants."""

from __future__ import annotations

import json
from collections.abc import Mapping

from .failures import milliseconds
from .host import HostError, need


class SendError(Exception):
    """The reason why a message was not sent. `code` is forbidden, refused or unavailable."""

    def __init__(self, code: str, why: object):
        super().__init__(f"{code}: {why}")
        self.code = code


def _attribute(name: str, value: object) -> tuple[str, str, str | bytes]:
    if isinstance(value, (bytes, bytearray)):
        return name, "Binary", bytes(value)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return name, "Number" if is_number else "String", str(value)


def send(
    queue: str,
    body: object,
    *,
    delay_ms: float = 0,
    attributes: Mapping[str, object] | None = None,
    group: str | None = None,
    deduplication_id: str | None = None,
) -> str:
    """Sends a message to a queue and returns its ID. A body that is not text or bytes is sent as
    JSON."""
    content = body if isinstance(body, (str, bytes)) else json.dumps(body)
    pairs = [_attribute(name, value) for name, value in (attributes or {}).items()]
    delay = milliseconds(delay_ms, "send: delay_ms") or 0
    try:
        return need("queues").send(queue, content, pairs, delay, group, deduplication_id)
    except HostError as error:
        raise SendError(error.code, error.value) from None
