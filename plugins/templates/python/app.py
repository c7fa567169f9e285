"""Checks that the body is a well-formed order: `{"id": "o-1", "amount": 250, "ready": true}`.
A malformed order is rejected, one that is not ready yet is tried again."""

from dispatcher_guest import Message

import order


def handle(message: Message) -> None:
    """To return without a value is done. To raise one of these is a failure:

        Retry(after_ms=2000, reason="why")    again later; Retry(): by the route's policy
        Reject("why")                         never again: the message goes to the dead-letter queue

    Any other exception goes to the log, and the message comes again by the route's policy."""
    found = order.check(message.json())
    print(f"order {found.id}: {found.amount} cents")
