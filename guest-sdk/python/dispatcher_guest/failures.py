"""The exceptions that a handler raises if a message is not done."""

from __future__ import annotations

from dataclasses import dataclass


def milliseconds(value: float | None, what: str) -> int | None:
    """Returns the time in whole milliseconds, rounded up; None if there is none."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 2**63:
        raise TypeError(f"{what}: wanted milliseconds, got {value!r}")
    return int(value) + (value > int(value))


class Failure(Exception):
    """The reason why a message is not done."""

    def _parts(self) -> tuple[object, ...]:
        return (str(self),)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash((type(self), self._parts()))


class Reject(Failure):
    """A failure that rejects the message. The message goes to the dead-letter queue with this
    reason and is not tried again."""

    def __init__(self, reason: object):
        super().__init__(str(reason))

    @property
    def reason(self) -> str:
        return str(self)


class Retry(Failure):
    """A failure that retries the message after this many milliseconds, or by the route's policy."""

    def __init__(self, after_ms: float | None = None, reason: object = None):
        super().__init__("" if reason is None else str(reason))
        self.after_ms = milliseconds(after_ms, "Retry: after_ms")
        self.reason = None if reason is None else str(reason)

    def _parts(self) -> tuple[object, ...]:
        return (self.after_ms, self.reason)


class Busy(Failure):
    """A failure because something is busy. Nothing was done for the message. The dispatcher keeps
    the lease and tries again."""

    def __init__(self, reason: object, after_ms: float | None = None):
        super().__init__(str(reason))
        self.after_ms = milliseconds(after_ms, "Busy: after_ms")
        self.reason = str(reason)

    def _parts(self) -> tuple[object, ...]:
        return (self.after_ms, self.reason)


class Closed(Failure):
    """A failure of every message of the route until someone acts. Nothing was done for the
    message."""

    def __init__(self, reason: object):
        super().__init__(str(reason))
        self.reason = str(reason)


@dataclass(frozen=True)
class Failed:
    """A message of a batch that is not done, and why. `handle_batch` returns a list of these."""

    id: str
    failure: Failure
