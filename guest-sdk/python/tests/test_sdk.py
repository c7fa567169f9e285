"""What the SDK does for a handler, with the fake host: `python -m pytest`."""

import logging

import pytest
from dispatcher_guest import (
    Busy,
    Closed,
    Failed,
    InvokeError,
    Reject,
    Retry,
    SendError,
    StoreError,
    count,
    gauge,
    http,
    invoke,
    log,
    open_store,
    send,
    setting,
)
from dispatcher_guest.host import provide
from dispatcher_guest.testing import Response, fake_host, message, run, run_batch


def raising(failure):
    def handle(_):
        raise failure

    return handle


def test_failures_are_told_as_they_were_raised():
    assert run(raising(Reject("no")), "x") == {"reject": "no"}
    assert run(raising(Retry()), "x") == {"retry": {"after_ms": None, "reason": None}}
    assert run(raising(Retry(after_ms=1.2, reason="w")), "x") == {"retry": {"after_ms": 2, "reason": "w"}}
    assert run(raising(Busy("full", after_ms=5)), "x") == {"busy": {"after_ms": 5, "reason": "full"}}
    assert run(raising(Closed("no key")), "x") == {"closed": "no key"}
    assert Reject("a") == Reject("a") and Reject("a") != Reject("b") and Retry(1) != Retry(2)
    with pytest.raises(ValueError):
        run(raising(ValueError("wrong")), "x")
    with pytest.raises(TypeError, match="returned 'ok'"):
        run(lambda _: "ok", "x")
    for wrong in (-1, "soon", True, float("nan"), float("inf")):
        with pytest.raises(TypeError, match="wanted milliseconds"):
            Retry(after_ms=wrong)


async def work():
    pass


def leaves_a_coroutine(_):
    work()


async def is_async(_):
    pass


def test_work_that_nothing_does_is_not_done():
    with pytest.raises(RuntimeError, match="coroutine 'work' was never awaited"):
        run(leaves_a_coroutine, "x")
    with pytest.raises(TypeError, match="returned a coroutine"):
        run(is_async, "x")
    with pytest.raises(RuntimeError, match="never awaited"):
        run_batch(lambda all: [leaves_a_coroutine(one) for one in all] and [], ["x"])


def test_a_batch_says_what_becomes_of_each_message():
    def handle(messages):
        return [Failed(one.id, Reject("bad")) for one in messages if one.body == "bad"]

    assert run_batch(handle, ["good", "bad"]) == [{"done": True}, {"reject": "bad"}]
    assert run_batch(raising(Busy("full")), ["a", "b"])[1] == {"busy": {"after_ms": None, "reason": "full"}}
    for wrong in (None, [Reject("no")], [Failed("other", Reject("no"))]):
        with pytest.raises(TypeError, match="the handler returned"):
            run_batch(lambda _, answer=wrong: answer, ["a"])


def test_a_response_that_is_too_large_is_an_error():
    fake_host(http=lambda _: Response(200, b"x" * (4 * 1024 * 1024 + 1)))
    with pytest.raises(http.RequestError) as error:
        http.get("https://a")
    assert error.value.code == "too-large"


def test_a_request_is_sent_as_it_was_written():
    host = fake_host(http=lambda request: Response(201, request.content, {"X-Id": "7"}))
    response = http.post("https://a/b?c=d", json={"e": 1}, params={"f": "g h"}, headers={"X-Y": "z"}, timeout_ms=50)
    (request,) = host.requests
    assert (request.method, request.url) == ("POST", "https://a/b?c=d&f=g+h")
    assert request.headers["x-y"] == "z" and request.headers["content-type"] == "application/json"
    assert request.json() == {"e": 1} and request.timeout_ms == 50
    assert response.ok and response.json() == {"e": 1} and response.headers["x-ID"] == "7"
    with pytest.raises(TypeError, match="not both"):
        http.post("https://a", json={}, body="x")


@pytest.mark.parametrize(
    ("status", "after", "failure"),
    [
        (404, "7", Reject("the response: 404")),
        (302, "", Reject("the response: 302")),
        (500, "", Retry(None, "the response: 500")),
        (503, "7", Retry(7000, "the response: 503")),
        (429, "0", Retry(None, "the response: 429")),
        (401, "soon", Retry(None, "the response: 401")),
    ],
)
def test_a_status_says_what_becomes_of_the_message(status, after, failure):
    with pytest.raises(type(failure)) as raised:
        Response(status, headers={"retry-after": after}).raise_for_status()
    assert raised.value == failure
    assert Response(204).raise_for_status().status == 204


def test_what_is_not_granted_is_an_error():
    fake_host()
    with pytest.raises(http.RequestError, match="fake_host") as raised:
        http.get("https://a")
    assert raised.value.code == "forbidden" and not raised.value.may_have_run
    with pytest.raises(SendError, match="local:q is not granted"):
        send("local:q", "x")
    with pytest.raises(InvokeError, match="forbidden"):
        invoke("f", {})
    with pytest.raises(StoreError, match="access-denied"):
        open_store("s")
    assert setting("api") is None and setting("api", "b") == "b"
    provide({})
    with pytest.raises(RuntimeError, match="import dispatcher:plugin/http@0.1.0"):
        http.get("https://a")
    with pytest.raises(RuntimeError, match="import wasi:keyvalue/store"):
        open_store("s")


def test_what_a_handler_asks_for_is_kept():
    host = fake_host(queues=["local:q"], functions={"f": lambda event: event["a"]}, stores=["s"], settings={"api": "u"})
    assert send("local:q", {"a": 1}, delay_ms=5, attributes={"n": 1, "t": "x", "b": b"y"}, group="g") == "sent-1"
    (sent,) = host.sent
    assert sent.json() == {"a": 1} and (sent.delay_ms, sent.group) == (5, "g")
    assert sent.attributes == {"n": "1", "t": "x", "b": b"y"}
    assert invoke("f", {"a": 7}) == 7 and host.invoked == [("f", {"a": 7})]
    store = open_store("s")
    store.set("k", "v")
    assert store.get("k") == b"v" and "k" in store and store.keys() == ["k"]
    assert store.increment("n", 2) == 2 and host.stores["s"]["n"] == b"2"
    store.delete("k")
    assert store.get("k") is None and setting("api") == "u"
    log("warn", "careful", order="o-1")
    assert host.logged == [("warn", "careful", {"order": "o-1"})]
    logging.info("priced", extra={"amount": 3})
    assert host.logged[1:] == [("info", "priced", {"amount": "3"})]
    count("orders", kind="a")
    count("orders", by=2, kind="a")
    gauge("depth", 3)
    assert host.counts == {"orders kind=a": 3} and host.gauges == {"depth": 3}


def test_a_message_knows_its_attempt():
    host = fake_host(max_timeout_ms=10)
    one = message({"a": 1}, attempt=2, attributes={"kind": "x"})
    assert one.json() == {"a": 1} and one.attributes["kind"] == "x"
    assert 0 < one.time_left_ms <= 30_000 and not one.cancelled
    assert one.extend(60_000) <= 10
    host.cancelled.add(one.id)
    assert one.cancelled
