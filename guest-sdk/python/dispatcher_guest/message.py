"""The message that a handler gets."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any

from .failures import Reject, milliseconds
from .host import need


@dataclass
class TraceContext:
    """A position in a trace, as W3C Trace Context defines it."""

    traceparent: str
    tracestate: str | None = None


@dataclass
class Message:
    """One delivery of a message. Every date is in milliseconds since the Unix epoch."""

    id: str
    queue: str
    # Text, or bytes if the payload is not UTF-8.
    body: str | bytes
    source: str
    receipt: str
    # The number of times that the message has been received, including this one.
    receive_count: int
    # The number of this attempt at the message, from 1. Every earlier delivery counts as one
    # attempt. So does every earlier attempt of this delivery.
    attempt: int
    # A key that is the same for every attempt at this message only, for services that carry out a
    # request with a known key only once.
    idempotency_key: str
    trace: TraceContext | None
    # The date when this attempt is stopped.
    deadline: int
    sent_at: int | None = None
    first_received_at: int | None = None
    group: str | None = None
    system_attributes: dict[str, str] = field(default_factory=dict)
    # The sender's attributes: text, or bytes if the type is Binary.
    attributes: dict[str, str | bytes] = field(default_factory=dict)
    body_md5: str | None = None
    attributes_md5: str | None = None

    def json(self) -> Any:
        """Parses the body as JSON. If that fails, rejects the message."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise Reject(f"the body: {error}") from None

    @property
    def time_left_ms(self) -> int:
        """The milliseconds until the attempt is stopped."""
        return max(0, self.deadline - int(time.time() * 1000))

    @property
    def cancelled(self) -> bool:
        """Whether the dispatcher ignores the handler's outcome."""
        return need("context").cancelled(self.id)

    def extend(self, ms: float) -> int:
        """Requests that the attempt may take this many milliseconds from now. Returns how many are
        granted."""
        deadline = need("context").extend(self.id, milliseconds(ms, "extend"))
        if deadline is not None:
            self.deadline = deadline
        return self.time_left_ms
