// What becomes of orders, without WebAssembly: `npm test`.

import assert from "node:assert/strict";
import test from "node:test";
import { check } from "./order.js";

const failure = (body) => {
  try {
    check(body);
  } catch (thrown) {
    return thrown;
  }
  return undefined;
};

test("a sound order is done", () => {
  assert.deepEqual(check('{"id": "o-1", "amount": 250}'), { id: "o-1", amount: 250 });
});

test("a malformed order is rejected with the reason", () => {
  assert.equal(failure('{"amount": 250}').val, "`id`: wanted a string");
  assert.equal(failure('{"id": "o-1", "amount": 2.5}').tag, "reject");
  assert.equal(failure('{"id": "o-1", "amount": 0}').tag, "reject");
  assert.equal(failure('{"id": "o-1", "amount": 1, "ready": "no"}').tag, "reject");
  assert.equal(failure("no JSON").tag, "reject");
});

test("an order that is not ready comes again", () => {
  const order = { id: "o-1", amount: 250, ready: false };
  assert.deepEqual(failure(JSON.stringify(order)), { tag: "retry", val: 2000 });
  const soon = { ...order, ready_in_ms: 5 };
  assert.deepEqual(failure(JSON.stringify(soon)), { tag: "retry", val: 5 });
});
