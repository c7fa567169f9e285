"""What becomes of orders, without WebAssembly: `.venv/bin/python -m pytest`."""

import pytest
from dispatcher_guest.testing import fake_host, run

from app import handle


@pytest.fixture(autouse=True)
def host():
    """What the handler asked of the dispatcher; its grants are this call's arguments."""
    return fake_host()


def test_a_sound_order_is_done(capsys):
    assert run(handle, {"id": "o-1", "amount": 250}) == {"done": True}
    assert capsys.readouterr().out == "order o-1: 250 cents\n"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"amount": 250}, "`id`"),
        ({"id": "o-1", "amount": True}, "`amount`"),
        ({"id": "o-1", "amount": 0}, "`amount`"),
        ({"id": "o-1", "amount": 1, "ready": 1}, "`ready`"),
        ([], "`id`"),
        ("no JSON", "the body: Expecting value"),
        ('{"id": "o-1", "amount": 1' + "0" * 5_000 + "}", "digits"),
    ],
)
def test_a_malformed_order_is_rejected_with_the_reason(body, why):
    assert why in run(handle, body)["reject"]


@pytest.mark.parametrize(("more", "after_ms"), [({}, 2000), ({"ready_in_ms": 5}, 5), ({"ready_in_ms": 2**64}, 2000)])
def test_an_order_that_is_not_ready_comes_again(more, after_ms):
    order = {"id": "o-1", "amount": 250, "ready": False}
    assert run(handle, {**order, **more}) == {"retry": {"after_ms": after_ms, "reason": None}}
