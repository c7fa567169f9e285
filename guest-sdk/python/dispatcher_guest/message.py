"""One delivery of one message, as a handler sees it."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any

from .failures import Reject, milliseconds
from .host import need


@dataclass
class TraceContext:
    """A position in a trace, as W3C Trace Context writes it."""

    traceparent: str
    tracestate: str | None = None


@dataclass
class Message:
    """One delivery of one message. Times are in milliseconds since the Unix epoch."""

    id: str
    queue: str
    # Text, or bytes where it is no UTF-8.
    body: str | bytes
    source: str
    receipt: str
    # How often the message has been received, from 1.
    receive_count: int
    # Which attempt of this delivery this is, from 1.
    attempt: int
    # The same for every attempt of this message, for services that carry out a known key only once.
    idempotency_key: str
    trace: TraceContext | None
    # When this attempt is stopped.
    deadline: int
    sent_at: int | None = None
    first_received_at: int | None = None
    group: str | None = None
    system_attributes: dict[str, str] = field(default_factory=dict)
    # Those of the sender: text, or bytes where the type is Binary.
    attributes: dict[str, str | bytes] = field(default_factory=dict)
    body_md5: str | None = None
    attributes_md5: str | None = None

    def json(self) -> Any:
        """The body as JSON; a body that is none rejects the message."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise Reject(f"the body: {error}") from None

    @property
    def time_left_ms(self) -> int:
        """How long until the attempt is stopped."""
        return max(0, self.deadline - int(time.time() * 1000))

    @property
    def cancelled(self) -> bool:
        """Whether what the handler answers no longer counts."""
        return need("context").cancelled(self.id)

    def extend(self, ms: float) -> int:
        """Requests that the attempt may take so many milliseconds from now; how many it may."""
        deadline = need("context").extend(self.id, milliseconds(ms, "extend"))
        if deadline is not None:
            self.deadline = deadline
        return self.time_left_ms
