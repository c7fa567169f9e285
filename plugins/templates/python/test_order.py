"""What becomes of orders, without WebAssembly: `python3 -m unittest`."""

import json
import unittest

import order


class Orders(unittest.TestCase):
    def test_a_sound_order_is_done(self):
        self.assertEqual(order.check('{"id": "o-1", "amount": 250}'), order.Order("o-1", 250))

    def test_a_malformed_order_is_rejected_with_the_reason(self):
        bodies = {
            '{"amount": 250}': "`id`",
            '{"id": "o-1", "amount": true}': "`amount`",
            '{"id": "o-1", "amount": 0}': "`amount`",
            '{"id": "o-1", "amount": 1, "ready": 1}': "`ready`",
            "[]": "`id`",
            "no JSON": "Expecting value",
            "[" * 100_000: "recursion",
            '{"id": "o-1", "amount": 1' + "0" * 5_000 + "}": "digits",
        }
        for body, why in bodies.items():
            with self.assertRaises(order.Malformed) as raised:
                order.check(body)
            self.assertIn(why, str(raised.exception), body)

    def test_an_order_that_is_not_ready_comes_again(self):
        body = {"id": "o-1", "amount": 250, "ready": False}
        for more, wanted in [({}, 2000), ({"ready_in_ms": 5}, 5), ({"ready_in_ms": 2**64}, 2000)]:
            with self.assertRaises(order.NotReady) as raised:
                order.check(json.dumps(body | more))
            self.assertEqual(raised.exception.after_ms, wanted)
