// What becomes of orders, without WebAssembly: `npm test`, which compiles the handler and its tests first.

import { fakeHost, run } from "dispatcher-guest/testing";
import assert from "node:assert/strict";
import test from "node:test";
import { handler } from "./handler.js";

const outcome = (order: object) => run(handler, JSON.stringify(order));

test("a sound order is done", async () => {
  fakeHost();
  assert.deepEqual(await outcome({ id: "o-1", amount: 250 }), { done: true });
});

test("a malformed order is rejected with the reason", async () => {
  fakeHost();
  assert.deepEqual(await outcome({ amount: 250 }), { reject: "`id`: wanted a string" });
  assert.ok("reject" in (await outcome({ id: "o-1", amount: 2.5 })));
  assert.ok("reject" in (await outcome({ id: "o-1", amount: 0 })));
  assert.ok("reject" in (await outcome({ id: "o-1", amount: 1, ready: "no" })));
  const rejected = await run(handler, "no JSON");
  assert.ok("reject" in rejected);
  assert.match(rejected.reject, /^the body: /);
});

test("an order that is not ready comes again", async () => {
  fakeHost();
  const order = { id: "o-1", amount: 250, ready: false };
  const retry = (afterMs: number) => ({ retry: { afterMs, reason: null } });
  assert.deepEqual(await outcome(order), retry(2000));
  assert.deepEqual(await outcome({ ...order, ready_in_ms: 5 }), retry(5));
});
