"""The SDK for dispatcher plugins in Python. A plugin is a function `handle(message)` that handles a
queue message."""

from . import http
from .failures import Busy, Closed, Failed, Failure, Reject, Retry
from .functions import InvokeError, invoke
from .message import Message, TraceContext
from .queues import SendError, send
from .store import Store, StoreError, open_store, setting
from .telemetry import count, gauge, log

__all__ = [
    "Busy",
    "Closed",
    "Failed",
    "Failure",
    "InvokeError",
    "Message",
    "Reject",
    "Retry",
    "SendError",
    "Store",
    "StoreError",
    "TraceContext",
    "count",
    "gauge",
    "http",
    "invoke",
    "log",
    "open_store",
    "send",
    "setting",
]
