"""What an order must look like. Imports nothing of the host, so `python3 -m unittest` runs it."""

import json
from dataclasses import dataclass

# How long an order may take to become ready, where it does not say itself.
PATIENCE_MS = 2000


class Malformed(Exception):
    """No order, and why."""


class NotReady(Exception):
    """An order that wants to be looked at again, after so many milliseconds."""

    def __init__(self, after_ms: int):
        super().__init__(f"not ready for {after_ms} ms")
        self.after_ms = after_ms


@dataclass
class Order:
    id: str
    amount: int


def is_whole(value: object) -> bool:
    # To Python true and false are numbers, and numbers have no end; those of the contract have.
    return type(value) is int and 0 <= value < 2**64


def check(body: str) -> Order:
    try:
        order = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Malformed(str(error)) from None
    if not isinstance(order, dict) or not isinstance(order.get("id"), str):
        raise Malformed("`id`: wanted a string")
    if not is_whole(order.get("amount")):
        raise Malformed("`amount`: wanted a whole number of cents")
    if order["amount"] == 0:
        raise Malformed("`amount`: wanted more than nothing")
    ready = order.get("ready")
    if ready is False:
        patience = order.get("ready_in_ms")
        raise NotReady(patience if is_whole(patience) else PATIENCE_MS)
    if ready not in (None, True) or is_whole(ready):
        raise Malformed("`ready`: wanted true or false")
    return Order(order["id"], order["amount"])
