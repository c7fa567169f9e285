"""Invokes the Lambda functions that the configuration grants."""

from __future__ import annotations

import json
from typing import Any

from .host import HostError, need


class InvokeError(Exception):
    """The reason why an invocation failed. `code` says whether the function ran: did-not-run,
    may-have-run, refused, permanent, forbidden, or function-error if the function itself failed."""

    def __init__(self, code: str, why: object, retry_after_ms: int | None = None):
        super().__init__(f"{code}: {why}")
        self.code = code
        self.retry_after_ms = retry_after_ms


def invoke(function: str, event: object, *, wait: bool = True) -> Any:
    """Invokes a function with an event and returns its response. Without `wait`, returns None."""
    try:
        payload, error = need("lambda").invoke(function, wait, json.dumps(event).encode())
    except HostError as failed:
        why, after = failed.value if failed.code == "did-not-run" else (failed.value, None)
        raise InvokeError(failed.code, why, after) from None
    if error is not None:
        raise InvokeError("function-error", payload.decode("utf-8", "replace"))
    return json.loads(payload) if payload else None
