"""Checks that the body is a well-formed order: `{"id": "o-1", "amount": 250, "ready": true}`.
A malformed order is rejected, one that is not ready yet is tried again."""

from componentize_py_types import Err
from wit_world import exports
from wit_world.imports.types import Failure_Reject, Failure_Retry, Message

import order


class Handler(exports.Handler):
    def handle(self, message: Message) -> None:
        """To return without a value is done. `Err` with a failure of the contract is that failure; any
        other exception goes to the log, and the message comes again by the route's policy."""
        try:
            found = order.check(message.body)
        except order.Malformed as why:
            # Never again: the message goes to the dead-letter queue with this reason.
            raise Err(Failure_Reject(str(why)))
        except order.NotReady as later:
            # Again after so many milliseconds; with None, as the route's policy says.
            raise Err(Failure_Retry(later.after_ms))
        print(f"order {found.id}: {found.amount} cents")
