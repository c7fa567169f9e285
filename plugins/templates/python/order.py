"""What an order must look like."""

from dataclasses import dataclass

from dispatcher_guest import Reject, Retry

# How long an order may take to become ready, where it does not say itself.
PATIENCE_MS = 2000


@dataclass
class Order:
    id: str
    amount: int


def is_whole(value: object) -> bool:
    # To Python true and false are numbers, and numbers have no end; those of the contract have.
    return type(value) is int and 0 <= value < 2**63


def check(body: object) -> Order:
    """The order that a body is, or an exception that says what becomes of the message."""
    if not isinstance(body, dict) or not isinstance(body.get("id"), str):
        raise Reject("`id`: wanted a string")
    if not is_whole(body.get("amount")):
        raise Reject("`amount`: wanted a whole number of cents")
    if body["amount"] == 0:
        raise Reject("`amount`: wanted more than nothing")
    ready = body.get("ready")
    if ready is False:
        patience = body.get("ready_in_ms")
        raise Retry(after_ms=patience if is_whole(patience) else PATIENCE_MS)
    if ready is not None and ready is not True:
        raise Reject("`ready`: wanted true or false")
    return Order(body["id"], body["amount"])
