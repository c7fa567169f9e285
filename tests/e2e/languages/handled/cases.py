"""Ways to end of which most do not handle the message; the body names one."""

import datetime
import logging
import os
import sys
from zoneinfo import ZoneInfo

from componentize_py_types import Err
from dispatcher_guest import Reject, Retry, http

BERLIN = ZoneInfo("Europe/Berlin")


async def work():
    raise ValueError("lost")


class Cases:
    def done(self):
        print("worked")

    def imports_inside(self):
        import colorsys
        from email import charset

        year = datetime.datetime.strptime("2024-02-29", "%Y-%m-%d").year
        print(f"imported inside: {year} {colorsys.__name__} {charset.__name__}")

    def time_zone(self):
        noon = datetime.datetime(2026, 7, 1, 12, tzinfo=datetime.timezone.utc)
        print(f"in Berlin: {noon.astimezone(BERLIN):%H:%M}")

    def logs(self):
        logging.getLogger("cases").warning("careful", extra={"order": "o-1"})

    def retry(self):
        raise Retry(after_ms=2000, reason="later")

    def retry_by_policy(self):
        raise Retry()

    def reject(self):
        raise Reject("no")

    def forbidden(self):
        try:
            http.get("http://example.com/")
        except http.RequestError as error:
            assert error.code == "forbidden" and not error.may_have_run
            raise Reject(error)

    async def coroutine(self):
        raise ValueError("lost")

    def unawaited(self):
        work()

    async def async_generator(self):
        yield 1

    def generator(self):
        yield 1

    def returns_reject(self):
        return Reject("no")

    def returns_text(self):
        return "ok"

    def returns_false(self):
        return False

    def raises_err(self):
        raise Err("text")

    def raises_bad_retry(self):
        raise Retry(after_ms="soon")

    def raises_negative_retry(self):
        raise Retry(after_ms=-1)

    def raises_text(self):
        raise "no"

    def imports_too_late(self):
        __import__("color" + "ful")

    def exits(self):
        sys.exit(0)

    def exits_at_once(self):
        os._exit(0)

    def stops(self):
        raise StopIteration

    def error(self):
        raise ValueError("wrong")


def handle(message):
    return getattr(Cases(), message.body)()
