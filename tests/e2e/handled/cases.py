"""Ways to end of which most do not handle the message; the body names one."""

import os
import sys

from componentize_py_types import Err
from wit_world import exports
from wit_world.imports.types import Failure_Reject, Failure_Retry


async def work():
    raise ValueError("lost")


class Cases:
    def done(self):
        print("worked")

    def retry(self):
        raise Err(Failure_Retry(None))

    def reject(self):
        raise Err(Failure_Reject("no"))

    async def coroutine(self):
        raise ValueError("lost")

    def unawaited(self):
        work()

    async def async_generator(self):
        yield 1

    def generator(self):
        yield 1

    def returns_err(self):
        return Err(Failure_Reject("no"))

    def returns_failure(self):
        return Failure_Reject("no")

    def returns_text(self):
        return "ok"

    def returns_false(self):
        return False

    def raises_text(self):
        raise Err("text")

    def raises_nothing(self):
        raise Err(None)

    def raises_class(self):
        raise Err(Failure_Reject)

    def raises_bad_retry(self):
        raise Err(Failure_Retry("soon"))

    def raises_negative_retry(self):
        raise Err(Failure_Retry(-1))

    def raises_bad_reject(self):
        raise Err(Failure_Reject(7))

    def raises_failure(self):
        raise Failure_Reject("no")

    def exits(self):
        sys.exit(0)

    def exits_at_once(self):
        os._exit(0)

    def stops(self):
        raise StopIteration

    def error(self):
        raise ValueError("wrong")


class Handler(exports.Handler):
    def handle(self, message):
        return getattr(Cases(), message.body)()
